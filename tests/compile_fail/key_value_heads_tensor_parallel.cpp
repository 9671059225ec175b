// expect: dtrain: the key/value heads neither divide over the tensor-parallel ranks nor divide their number
// expect: KeyValueHeadsDivide<3, 4>
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// fault C11
// Three key/value heads on four ranks; two can be copied.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = models::Llama<models::LlamaShape{
    .vocab = 16, .context = 8, .width = 24, .heads = 12, .layers = 1, .key_value_heads = 3}>;
#else
using Model = models::Llama<models::LlamaShape{
    .vocab = 16, .context = 8, .width = 24, .heads = 12, .layers = 1, .key_value_heads = 2}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<4>, float>::check());
