// expect: dtrain: gate and up of a SwiGLU do not each divide over the tensor-parallel ranks
// expect: Divides<3, 2>
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// fault G14
// Gate and up together are six features, which two ranks could share; each alone is three, which they cannot.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model =
    models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1, .hidden = 3}>;
#else
using Model =
    models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1, .hidden = 4}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<2>, float>::check());
