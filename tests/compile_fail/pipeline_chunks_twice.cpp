// expect: dtrain: PipelineParallel is given Chunks twice
// expect: GivenOnce<2>
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<2, schedule::Interleaved1F1B, Chunks<2>, Chunks<3>>>;
#else
using S = Strategy<PipelineParallel<2, schedule::Interleaved1F1B, Chunks<2>>>;
#endif

static_assert(S::static_ranks > 0);
