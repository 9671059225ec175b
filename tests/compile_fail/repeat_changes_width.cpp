// expect: dtrain: a repeated block does not give the width and layout that it takes
// expect: BlockRepeats<
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Repeat<2, nn::Linear<8, 12>>>;
#else
using Model = nn::Sequence<nn::Repeat<2, nn::Linear<8, 8>>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
