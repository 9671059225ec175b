// expect: dtrain: a tied parameter names no parameter of the model's own sequence, or is itself repeated
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// fault C21
// Every copy of a repeated block is a unit of its own: the one weight would belong to several.
using Tied = nn::Linear<8, 8, nn::LinearOptions{.bias = false}, "first.weight">;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Named<"first", nn::Linear<8, 8>>, nn::Named<"blocks", nn::Repeat<2, Tied>>>;
#else
using Model = nn::Sequence<nn::Named<"first", nn::Linear<8, 8>>, Tied>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
