// expect: dtrain: a group of ranks that shards parameters needs at least 1 of them
// expect: PositiveGroup<0>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<6, Zero<3, ShardWithin<0>>>>;
#else
using S = Strategy<DataParallel<6, Zero<3, ShardWithin<1>>>>;
#endif

static_assert(S::static_ranks > 0);
