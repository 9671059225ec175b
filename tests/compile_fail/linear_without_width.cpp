// expect: dtrain: a linear layer needs widths above 0
// expect: Positive<0>
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, 0>>;
#else
using Model = nn::Sequence<nn::Linear<8, 1>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
