// expect: dtrain: the width of a Gpt is not a whole number of attention heads
// expect: WidthIsHeads<30, 4>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 30, .heads = 4, .layers = 1}>;
#else
using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 32, .heads = 4, .layers = 1}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
