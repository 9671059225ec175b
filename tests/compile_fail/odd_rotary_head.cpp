// expect: dtrain: rotary positions need an even head size
// expect: Even<3>
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 12, .heads = 4, .layers = 1}>;
#else
using Model = models::Llama<models::LlamaShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
