// expect: dtrain: the degree of pipeline parallelism must be at least 1
// expect: PositiveDegree<0>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<0>>;
#else
using S = Strategy<PipelineParallel<1>>;
#endif

static_assert(S::static_ranks > 0);
