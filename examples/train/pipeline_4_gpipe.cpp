// Four pipeline stages under GPipe.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<example::dt::PipelineParallel<4, example::dt::schedule::GPipe>>> compiled(
    "pp4-gpipe");
}
