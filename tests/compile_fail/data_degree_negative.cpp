// expect: dtrain: the degree of data parallelism must be at least 1, or dynamic
// expect: PositiveDegree<-2>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<-2>>;
#else
using S = Strategy<DataParallel<dynamic>>;
#endif

static_assert(S::static_ranks > 0);
