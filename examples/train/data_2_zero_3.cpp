// The batch cut over two ranks, which share out parameters, gradients and optimizer state; blocks are recomputed.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Data2Zero3> trained("dp2-zero3");
}
