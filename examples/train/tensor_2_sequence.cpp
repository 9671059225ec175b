// Every layer cut over two ranks, the residual stream by rows.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<example::dt::TensorParallel<2, example::dt::SequenceParallel>>> compiled(
    "tp2-sp");
}
