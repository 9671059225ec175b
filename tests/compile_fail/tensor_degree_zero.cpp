// expect: dtrain: the degree of tensor parallelism must be at least 1
// expect: PositiveDegree<0>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<TensorParallel<0>>;
#else
using S = Strategy<TensorParallel<1>>;
#endif

static_assert(S::static_ranks > 0);
