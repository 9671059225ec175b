// expect: dtrain: a Repeat stands only in the model's own sequence, not inside another layer
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Residual<nn::Repeat<2, nn::Linear<8, 8>>>>;
#else
using Model = nn::Sequence<nn::Repeat<2, nn::Residual<nn::Linear<8, 8>>>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
