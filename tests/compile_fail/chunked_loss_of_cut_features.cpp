// expect: dtrain: under SequenceParallel, ChunkedLoss needs a last unit that begins in the residual stream
// expect: RowsAreSharedFromTheStart<false, true
#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"

using namespace dtrain;

using Up = nn::Named<"up", nn::Linear<4, 8>>;
using Down = nn::Named<"down", nn::Linear<8, 4>>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<Up, Down>;
#else
using Model = nn::Sequence<nn::Sequence<Up, Down>>;
#endif
using Cut = Strategy<TensorParallel<2, SequenceParallel>, ChunkedLoss<8>>;

static_assert(sizeof(parallel::Program<Model, Cut, float, Host, comm::Threads>) > 0);
