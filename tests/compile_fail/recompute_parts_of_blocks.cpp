// expect: dtrain: Recompute takes either Full or one EveryBlock, or Attention, NormsAndActivations or both
// expect: BlocksOrParts
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<Recompute<recompute::EveryBlock<2>, recompute::Attention>>;
#else
using S = Strategy<Recompute<recompute::EveryBlock<2>>>;
#endif

static_assert(S::static_ranks > 0);
