// expect: dtrain: a layer that reads tokens stands behind another one, whose output would be lost
// expect: TokenEmbedding<16, 4
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, 8>, nn::TokenEmbedding<16, 4>, nn::Linear<4, 16>>;
#else
using Model = nn::Sequence<nn::TokenEmbedding<16, 4>, nn::Linear<4, 16>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
