// expect: dtrain: two layers use the storage of one parameter, which a pipeline does not support
// expect: OneUserPerTie
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/stages.hpp"

using namespace dtrain;

using Owner = nn::Named<"owner", nn::Linear<8, 8, nn::LinearOptions{.bias = false}>>;
using User = nn::Linear<8, 8, nn::LinearOptions{.bias = false}, "owner.weight">;
using Model = nn::Sequence<Owner, User, User>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<PipelineParallel<2>>;
#else
using S = Strategy<DataParallel<2>>;
#endif

static_assert(parallel::Stages<parallel::LoweredFor<Model, S, float>, S>::check());
