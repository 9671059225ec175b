// expect: dtrain: a strategy is made of policies: DataParallel, TensorParallel, PipelineParallel, Recompute,
// expect: ChunkedLoss, or your own
// expect clang: Policy<Twice>
// expect gcc: Policy<Twice>
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

struct Twice {
  static constexpr int degree = 2;
};

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<2>, Twice>;
#else
using S = Strategy<DataParallel<2>>;
#endif

static_assert(S::static_ranks > 0);
