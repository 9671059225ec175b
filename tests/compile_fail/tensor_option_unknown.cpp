// expect: dtrain: TensorParallel takes no option but SequenceParallel
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<TensorParallel<2, BucketBytes<4096>>>;
#else
using S = Strategy<TensorParallel<2, SequenceParallel>>;
#endif

static_assert(S::static_ranks > 0);
