// expect: dtrain: a strategy names the same axis twice
// expect clang: OnePolicyPerAxis<
// expect gcc: OnePolicyPerAxis
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2>, DataParallel<4>>;
#else
using S = Strategy<DataParallel<2>, TensorParallel<4>>;
#endif

static_assert(S::static_ranks > 0);
