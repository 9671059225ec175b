// The batch and every layer cut over two ranks each.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Data2Tensor2> trained("dp2-tp2");
}
