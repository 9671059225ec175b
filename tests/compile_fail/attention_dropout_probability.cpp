// expect: dtrain: a dropout probability lies in [0, 1)
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

constexpr nn::AttentionOptions heads(double dropout) {
  return {.heads = 2, .key_value_heads = 2, .head_size = 4, .dropout = dropout};
}

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, heads(1.5).input()>, nn::CausalSelfAttention<heads(1.5)>>;
#else
using Model = nn::Sequence<nn::Linear<8, heads(0.5).input()>, nn::CausalSelfAttention<heads(0.5)>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
