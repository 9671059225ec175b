// expect: dtrain: the degree of data parallelism is no multiple of the ranks that Zero shards within
// expect: GroupsDivideTheAxis<4, 6>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<6, Zero<3, ShardWithin<4>>>>;
#else
using S = Strategy<DataParallel<6, Zero<3, ShardWithin<3>>>>;
#endif

static_assert(S::static_ranks > 0);
