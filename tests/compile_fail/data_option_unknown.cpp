// expect: dtrain: DataParallel takes no option but BucketBytes, Reduce and Zero
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2, SequenceParallel>>;
#else
using S = Strategy<DataParallel<2, BucketBytes<4096>>>;
#endif

static_assert(S::static_ranks > 0);
