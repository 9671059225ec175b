// Two pipeline stages.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Pipeline2> trained("pp2");
}
