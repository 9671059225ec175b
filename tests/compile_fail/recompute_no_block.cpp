// expect: dtrain: recomputation of every n-th block needs an n of at least 1
// expect: EveryNth<0>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<Recompute<recompute::EveryBlock<0>>>;
#else
using S = Strategy<Recompute<recompute::EveryBlock<2>>>;
#endif

static_assert(S::static_ranks > 0);
