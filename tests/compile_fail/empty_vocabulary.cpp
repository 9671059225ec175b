// expect: dtrain: an embedding needs a vocabulary and a width above 0
// expect: Positive<0>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model =
    models::Gpt<models::GptShape{.vocab = 0, .context = 8, .width = 16, .heads = 4, .layers = 1, .tied = false}>;
#else
using Model =
    models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1, .tied = false}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
