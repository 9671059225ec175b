// expect: dtrain: a tied parameter has another shape than the parameter that it names
// expect: TiedShapesMatch<16, 8, 17, 8>
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Named<"embedding", nn::TokenEmbedding<17, 8>>,
                           nn::Linear<8, nn::vocabulary_of(16), nn::LinearOptions{.bias = false}, "embedding.weight">>;
#else
using Model = nn::Sequence<nn::Named<"embedding", nn::TokenEmbedding<17, 8>>,
                           nn::Linear<8, nn::vocabulary_of(17), nn::LinearOptions{.bias = false}, "embedding.weight">>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
