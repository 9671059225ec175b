// Every layer cut over two ranks.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<example::dt::TensorParallel<2>>> compiled("tp2");
}
