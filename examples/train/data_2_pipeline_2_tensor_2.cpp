// All three axes: the main job's default.
#include "run.hpp"

namespace {
const example::Compiled<example::dt::Strategy<
    example::dt::DataParallel<2>, example::dt::PipelineParallel<2, example::dt::schedule::OneForwardOneBackward>,
    example::dt::TensorParallel<2>>>
    compiled("dp2-pp2-tp2");
}
