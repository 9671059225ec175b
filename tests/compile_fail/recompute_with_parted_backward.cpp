// expect: dtrain: the schedule splits the backward pass, which then would recompute everything twice
// expect: RecomputesOnce
#include "dtrain/models/mlp.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/stages.hpp"

using namespace dtrain;

using Model = models::Mlp<models::MlpShape{.inputs = 3, .hidden = 8, .outputs = 5, .layers = 4}>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<2, schedule::ZeroBubbleH1>, Recompute<recompute::Full>>;
#else
using S = Strategy<PipelineParallel<2, schedule::OneForwardOneBackward>, Recompute<recompute::Full>>;
#endif

static_assert(parallel::Stages<parallel::LoweredFor<Model, S, float>, S>::check());
