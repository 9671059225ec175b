// expect: dtrain: the width before a layer is not the width that it takes
// expect: WidthsMatch<16, 12
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, 16>, nn::Linear<12, 4>>;
#else
using Model = nn::Sequence<nn::Linear<8, 16>, nn::Linear<16, 4>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
