// expect: dtrain: a schedule is a type with static constexpr members name, in_flight(stage, stages, micro_batches)
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<2, SequenceParallel>>;
#else
using S = Strategy<PipelineParallel<2, schedule::OneForwardOneBackward>>;
#endif

static_assert(S::static_ranks > 0);
