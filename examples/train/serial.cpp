// One rank, all cores.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Serial> compiled("serial");
}
