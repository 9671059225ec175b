// The batch cut over two ranks.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<example::dt::DataParallel<2>>> compiled("dp2");
}
