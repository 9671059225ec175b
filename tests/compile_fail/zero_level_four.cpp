// expect: dtrain: ZeRO has the levels 1, 2 and 3
// expect: ZeroLevel<4>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<4>>>;
#else
using S = Strategy<DataParallel<2, Zero<3>>>;
#endif

static_assert(S::sharding.level > 0);
