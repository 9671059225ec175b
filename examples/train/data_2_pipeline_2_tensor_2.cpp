// All three axes: the main job's default.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Data2Pipeline2Tensor2> trained("dp2-pp2-tp2");
}
