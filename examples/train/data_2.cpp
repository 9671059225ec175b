// The batch cut over two ranks.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Data2> trained("dp2");
}
