// expect: dtrain: ZeRO has the levels 1, 2 and 3
// expect: ZeroLevel<0>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<0>>>;
#else
using S = Strategy<DataParallel<2, Zero<1>>>;
#endif

static_assert(S::sharding.level > 0);
