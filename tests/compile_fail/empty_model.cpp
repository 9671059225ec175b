// expect: dtrain: a model needs at least one layer
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// A dropout that drops nothing vanishes, and nothing is left.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Dropout<8, nn::Probability{0.0}>>;
#else
using Model = nn::Sequence<nn::Linear<8, 8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
