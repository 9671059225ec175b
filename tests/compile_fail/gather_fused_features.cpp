// expect: dtrain: fused, padded or copied features cannot be gathered or sliced between tensor-parallel ranks
// expect: SharesLieSideBySide<2, 16, 16>
#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// Each rank holds half of the gate and half of the up: side by side, they are not the whole.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, nn::SwiGlu<8>::input>, nn::LayerNorm<16>>;
#else
using Model = nn::Sequence<nn::Linear<8, nn::SwiGlu<8>::input>, nn::SwiGlu<8>, nn::LayerNorm<8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<2>, float>::check());
