// expect: dtrain: a model is a Sequence of layers
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Linear<8, 8>;
#else
using Model = nn::Sequence<nn::Linear<8, 8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
