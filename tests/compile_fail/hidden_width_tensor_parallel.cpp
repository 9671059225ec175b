// expect: dtrain: the output features of a linear layer do not divide over the tensor-parallel ranks
// expect: Divides<30, 4>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model =
    models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1, .hidden = 30}>;
#else
using Model =
    models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 1, .hidden = 32}>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<4>, float>::check());
