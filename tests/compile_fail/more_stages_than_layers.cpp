// expect: dtrain: the model has fewer pieces to cut it into than the strategy has pipeline stages
// expect: StagesFit<6, 8>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/stages.hpp"

using namespace dtrain;

// Two embeddings, two blocks, a norm and a head are six pieces.
using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 2}>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<8>>;
#else
using S = Strategy<PipelineParallel<6>>;
#endif

static_assert(parallel::Stages<parallel::LoweredModel<Model, S::Tensor, float>, S>::check());
