// expect: dtrain: a chunk of the loss needs at least 1 row
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Chunked = Strategy<ChunkedLoss<0>>;
#else
using Chunked = Strategy<ChunkedLoss<1>>;
#endif

static_assert(Chunked::loss_rows < 2);
