// expect: dtrain: ChunkedLoss runs the model's last unit in chunks of rows, but the model ends in a Repeat
// expect: LossUnitStandsAlone<true
#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"

using namespace dtrain;

using Blocks = nn::Named<"blocks", nn::Repeat<2, nn::Linear<4, 4>>>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<Blocks>;
#else
using Model = nn::Sequence<Blocks, nn::Linear<4, 4>>;
#endif

static_assert(sizeof(parallel::Program<Model, Strategy<ChunkedLoss<8>>, float, Host, comm::Threads>) > 0);
