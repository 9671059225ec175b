// expect: dtrain: the option Chunks goes with schedules that take any number of chunks, and they need it
#include "dtrain/parallel/policies.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Pipeline = PipelineParallel<2, schedule::Interleaved1F1B>;
#else
using Pipeline = PipelineParallel<2, schedule::Interleaved1F1B, Chunks<2>>;
#endif

static_assert(Pipeline::virtual_stages > 0);
