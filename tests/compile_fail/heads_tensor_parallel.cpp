// expect: dtrain: the attention heads do not divide over the tensor-parallel ranks
// expect: HeadsDivide<6, 4>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// Six heads on four ranks; eight can be shared.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 24, .heads = 6, .layers = 1}>;
#else
using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 24, .heads = 8, .layers = 1}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<4>, float>::check());
