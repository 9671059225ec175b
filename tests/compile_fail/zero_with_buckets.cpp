// expect: dtrain: BucketBytes has no effect under Zero, which reduces gradients unit by unit
// expect: BucketsAreReduced<1, 1>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<2>, BucketBytes<4096>>>;
#else
using S = Strategy<DataParallel<2, BucketBytes<4096>>>;
#endif

static_assert(S::static_ranks > 0);
