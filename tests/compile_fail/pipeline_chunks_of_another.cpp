// expect: dtrain: the option Chunks goes with schedules that take any number of chunks, and they need it
// expect: ChunksFit
#include "dtrain/parallel/policies.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Pipeline = PipelineParallel<2, schedule::ZeroBubbleV, Chunks<3>>;
#else
using Pipeline = PipelineParallel<2, schedule::ZeroBubbleV, Chunks<2>>;
#endif

static_assert(Pipeline::virtual_stages > 0);
