// expect: dtrain: Recompute takes what dtrain::recompute names: Full, EveryBlock, Attention, NormsAndActivations
// expect: Recomputable
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<Recompute<SequenceParallel>>;
#else
using S = Strategy<Recompute<recompute::Full>>;
#endif

static_assert(S::static_ranks > 0);
