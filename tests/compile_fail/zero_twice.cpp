// expect: dtrain: DataParallel is given an option twice
// expect: GivenOnce<2>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<1>, Zero<3>>>;
#else
using S = Strategy<DataParallel<2, Zero<3>>>;
#endif

static_assert(S::static_ranks > 0);
