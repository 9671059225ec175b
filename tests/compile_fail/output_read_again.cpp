// expect: dtrain: the model ends in a layer that reads its own output again, but the loss overwrites it
// expect: OutputIsFree<true
#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"

using namespace dtrain;

// Attention keeps its output for the backward pass; a linear layer behind it gives logits that nobody else reads.
inline constexpr nn::AttentionOptions heads{.heads = 1, .key_value_heads = 1, .head_size = 4};
using Project = nn::Linear<4, heads.input()>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<Project, nn::CausalSelfAttention<heads>>;
#else
using Model = nn::Sequence<Project, nn::CausalSelfAttention<heads>, nn::Linear<heads.output(), 4>>;
#endif

static_assert(sizeof(parallel::Program<Model, Serial, float, Host, comm::Threads>) > 0);
