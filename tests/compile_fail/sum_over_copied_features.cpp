// expect: dtrain: a linear layer cannot sum over features that several tensor-parallel ranks hold alike
// expect gcc: NotCopied<true, 2>
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// Two ranks hold the same four features, which the sum would count twice.
inline constexpr nn::Features copied = nn::fused(nn::FeaturePart{.units = 1, .unit_size = 4, .replicable = true});

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, copied>, nn::Linear<copied, 8>>;
#else
using Model = nn::Sequence<nn::Linear<8, 4>, nn::Linear<4, 8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<2>, float>::check());
