// expect: dtrain: Prefetch goes with level 3 of Zero: below it every rank holds all parameters
// expect: PrefetchHasParameters<2, 1>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<2, Prefetch<2>>>>;
#else
using S = Strategy<DataParallel<2, Zero<3, Prefetch<2>>>>;
#endif

static_assert(S::static_ranks > 0);
