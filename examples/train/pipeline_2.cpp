// Two pipeline stages.
#include "run.hpp"

namespace {
const example::Compiled<
    example::dt::Strategy<example::dt::PipelineParallel<2, example::dt::schedule::OneForwardOneBackward>>>
    compiled("pp2");
}
