// expect: dtrain: a dropout probability lies in [0, 1)
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, 8>, nn::Dropout<8, nn::Probability{1.0}>>;
#else
using Model = nn::Sequence<nn::Linear<8, 8>, nn::Dropout<8, nn::Probability{0.9}>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
