// Four pipeline stages under GPipe.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Pipeline4GPipe> trained("pp4-gpipe");
}
