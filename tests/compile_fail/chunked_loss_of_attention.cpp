// expect: dtrain: ChunkedLoss runs the model's last unit on some of the rows at a time
// expect: RowsAreApart<
#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"

using namespace dtrain;

inline constexpr nn::AttentionOptions heads{.heads = 1, .key_value_heads = 1, .head_size = 4};
using Attention = nn::Sequence<nn::Linear<4, heads.input()>, nn::CausalSelfAttention<heads>>;
using Head = nn::Linear<heads.output(), 4>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Sequence<Attention, Head>>;
#else
using Model = nn::Sequence<Attention, Head>;
#endif

static_assert(sizeof(parallel::Program<Model, Strategy<ChunkedLoss<8>>, float, Host, comm::Threads>) > 0);
