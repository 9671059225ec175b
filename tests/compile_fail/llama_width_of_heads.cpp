// expect: dtrain: the width of a Llama is not a whole number of attention heads, and no head size is given
// expect: HeadSizeKnown<0, 30, 4>
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 30, .heads = 4, .layers = 1}>;
#else
using Model =
    models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 30, .heads = 4, .layers = 1, .head_size = 6}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
