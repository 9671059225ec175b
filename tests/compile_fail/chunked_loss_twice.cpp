// expect: dtrain: a strategy names ChunkedLoss twice; one number of rows holds for all
// expect: AtMostOneChunkedLoss<2
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Chunked = Strategy<ChunkedLoss<8>, ChunkedLoss<16>>;
#else
using Chunked = Strategy<ChunkedLoss<8>, Recompute<recompute::Full>>;
#endif

static_assert(Chunked::loss_rows == 8);
