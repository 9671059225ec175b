// expect: dtrain: a residual branch begins with a layer that reads tokens, to which nothing can be added
// expect: TokenEmbedding<16, 4
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Residual<nn::TokenEmbedding<16, 4>>, nn::Linear<4, 16>>;
#else
using Model = nn::Sequence<nn::TokenEmbedding<16, 4>, nn::Residual<nn::Linear<4, 4>>, nn::Linear<4, 16>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
