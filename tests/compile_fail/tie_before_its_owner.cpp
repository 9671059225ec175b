// expect: dtrain: a tied parameter names a parameter of a later layer
// expect: TieOwnerComesFirst
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

using Owner = nn::Named<"owner", nn::Linear<8, 8, nn::LinearOptions{.bias = false}>>;
using User = nn::Linear<8, 8, nn::LinearOptions{.bias = false}, "owner.weight">;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<User, Owner>;
#else
using Model = nn::Sequence<Owner, User>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
