// expect: dtrain: two parameters of a model have the same name
// expect: NamesDiffer<0, 1>
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

using Blocks = nn::Named<"blocks", nn::Repeat<3, nn::Named<"up", nn::Linear<8, 8>>>>;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<Blocks, nn::Named<"blocks", nn::Sequence<nn::Named<"2.up", nn::Linear<8, 8>>>>>;
#else
using Model = nn::Sequence<Blocks, nn::Named<"blocks", nn::Sequence<nn::Named<"3.up", nn::Linear<8, 8>>>>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
