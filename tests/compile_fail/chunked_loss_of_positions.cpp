// expect: dtrain: ChunkedLoss gathers rows of all sequence-parallel ranks in front of a layer that must know
// expect: RowsStandAnywhere<
#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"

using namespace dtrain;

inline constexpr nn::AttentionOptions heads{.heads = 2, .key_value_heads = 2, .head_size = 4};
using Model = nn::Sequence<nn::Sequence<nn::Named<"in", nn::Linear<8, heads.input()>>, nn::RotaryPositions<heads>,
                                        nn::Named<"out", nn::Linear<heads.input(), 4>>>>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Cut = Strategy<TensorParallel<2, SequenceParallel>, ChunkedLoss<8>>;
#else
using Cut = Strategy<TensorParallel<2>, ChunkedLoss<8>>;
#endif

static_assert(sizeof(parallel::Program<Model, Cut, float, Host, comm::Threads>) > 0);
