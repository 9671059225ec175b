// One rank, all cores.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::dt::Serial> trained("serial");
}
