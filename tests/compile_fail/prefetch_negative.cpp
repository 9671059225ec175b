// expect: dtrain: the number of units gathered ahead must not be negative
// expect: UnitsAhead
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<3, Prefetch<-1>>>>;
#else
using S = Strategy<DataParallel<2, Zero<3, Prefetch<0>>>>;
#endif

static_assert(S::static_ranks > 0);
