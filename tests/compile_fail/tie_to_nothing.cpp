// expect: dtrain: a tied parameter names no parameter of the model's own sequence, or is itself repeated
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Named<"embedding", nn::TokenEmbedding<17, 8>>,
                           nn::Linear<8, nn::vocabulary_of(17), nn::LinearOptions{.bias = false}, "embeding.weight">>;
#else
using Model = nn::Sequence<nn::Named<"embedding", nn::TokenEmbedding<17, 8>>,
                           nn::Linear<8, nn::vocabulary_of(17), nn::LinearOptions{.bias = false}, "embedding.weight">>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
