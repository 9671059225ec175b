// The batch and every layer cut over two ranks each.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<example::dt::DataParallel<2>, example::dt::TensorParallel<2>>> compiled(
    "dp2-tp2");
}
