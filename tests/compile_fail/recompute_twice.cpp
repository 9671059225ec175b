// expect: dtrain: a strategy names Recompute twice; give it everything at once
// expect: AtMostOneRecomputation<2>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<Recompute<recompute::Attention>, Recompute<recompute::NormsAndActivations>>;
#else
using S = Strategy<Recompute<recompute::Attention, recompute::NormsAndActivations>>;
#endif

static_assert(S::static_ranks > 0);
