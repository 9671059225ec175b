// expect: dtrain: fused, padded or copied features cannot be gathered or sliced between tensor-parallel ranks
// expect: SharesLieSideBySide<1, 18, 17>
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// Two ranks hold nine rows each of a vocabulary of 17.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, nn::vocabulary_of(17)>, nn::LayerNorm<17>>;
#else
using Model = nn::Sequence<nn::Linear<8, nn::vocabulary_of(18)>, nn::LayerNorm<18>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<2>, float>::check());
