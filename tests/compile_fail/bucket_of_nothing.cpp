// expect: dtrain: a gradient bucket needs a size above 0
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, BucketBytes<0>>>;
#else
using S = Strategy<DataParallel<2, BucketBytes<1>>>;
#endif

static_assert(S::static_ranks > 0);
