// expect: dtrain: two parameters of a model have the same name
// expect: NamesDiffer<0, 1>
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Named<"a", nn::Linear<8, 8>>, nn::Named<"a", nn::Linear<8, 8>>>;
#else
using Model = nn::Sequence<nn::Named<"a", nn::Linear<8, 8>>, nn::Named<"b", nn::Linear<8, 8>>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
