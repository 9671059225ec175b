// Every layer cut over two ranks.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Tensor2> trained("tp2");
}
