// expect: dtrain: the key/value heads of an attention do not divide its query heads
// expect: QueryGroupsDivide<6, 4>
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Llama<models::LlamaShape{
    .vocab = 16, .context = 8, .width = 24, .heads = 6, .layers = 1, .key_value_heads = 4}>;
#else
using Model = models::Llama<models::LlamaShape{
    .vocab = 16, .context = 8, .width = 24, .heads = 6, .layers = 1, .key_value_heads = 3}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
