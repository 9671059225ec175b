// expect: dtrain: Zero is given an option twice
// expect: GivenOnce<2>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<4, Zero<3, ShardWithin<2>, ShardWithin<4>>>>;
#else
using S = Strategy<DataParallel<4, Zero<3, ShardWithin<2>, Prefetch<2>>>>;
#endif

static_assert(S::static_ranks > 0);
