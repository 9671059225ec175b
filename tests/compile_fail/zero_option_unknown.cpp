// expect: dtrain: Zero takes no option but ShardWithin and Prefetch
// expect: ZeroOption
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, Zero<2, SequenceParallel>>>;
#else
using S = Strategy<DataParallel<2, Zero<2, ShardWithin<2>>>>;
#endif

static_assert(S::static_ranks > 0);
