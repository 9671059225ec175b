// Every layer cut over two ranks, the residual stream by rows.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Tensor2Sequence> trained("tp2-sp");
}
