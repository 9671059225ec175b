// Master weights: where they start, what they keep that 16 bits lose, and that decay goes by a parameter's description.
#include "dtrain/train/optimizer_state.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/sgd.hpp"
#include "dtrain/parallel/stages.hpp"
#include "dtrain/parallel/strategy.hpp"

namespace {

using namespace dtrain;

constexpr std::uint64_t seed = 11;

// The names say nothing of decay: the norm is a "matrix" and the linear layer a "norm.bias".
using Model = nn::Sequence<nn::Named<"matrix", nn::LayerNorm<8>>, nn::Named<"norm.bias", nn::Linear<8, 6>>>;

template <class S, class Format>
using Lowered = parallel::LoweredFor<Model, S, typename PrecisionOf<Format>::Parameter>;
template <class S, class Format>
using Store = parallel::ParameterStore<Lowered<S, Format>, Format, Host>;

/// What rank `rank` of `ranks` that share out parameters holds.
template <class S, class Format>
Store<S, Format> store_of(Host& device, int ranks = 1, int rank = 0) {
  // A store refers to its plan.
  static std::deque<parallel::RankPlan<Lowered<S, Format>, Format>> plans;
  plans.push_back(parallel::plan_of_rank<Lowered<S, Format>, S, Format>(0, ranks, rank));
  return {device, plans.back(), 0, 0, seed};
}

/// Calls visit(index in the parameters, index in the optimizer's state, parameter) for every element of `store`.
template <class StoreType, class Visit>
void for_elements(const StoreType& store, Visit&& visit) {
  for (const parallel::LocalParameter& parameter : store.map())
    store.for_update_runs(parameter, [&](Index at, Index state, Index, Index count) {
      for (Index i = 0; i < count; ++i)
        visit(static_cast<std::size_t>(at + i), static_cast<std::size_t>(state + i), parameter);
    });
}

}  // namespace

TEST_CASE_TEMPLATE("master weights start from the numbers that parameters are rounded from", T, dtrain::bfloat16,
                   float16) {
  Host device;
  auto store = store_of<Serial, T>(device);
  auto exact = store_of<Serial, float>(device);
  train::OptimizerState<AdamW, T, Host> state(device, store, seed);
  CHECK(state.bytes() == 3 * store.plan().parameter_size() * Index{4});
  int inexact = 0;
  for_elements(store, [&](std::size_t at, std::size_t master, const auto&) {
    CHECK(state.masters()[master] == exact.parameters()[at]);
    CHECK(store.parameters()[at].bits() == T(exact.parameters()[at]).bits());
    inexact += static_cast<float>(store.parameters()[at]) != exact.parameters()[at] ? 1 : 0;
  });
  CHECK(inexact > 30);
}

// fault D10
TEST_CASE_TEMPLATE("updates too small for 16 bits add up in the master weights", T, dtrain::bfloat16, float16) {
  Host device;
  auto store = store_of<Serial, T>(device);
  train::OptimizerState<Sgd, T, Host> state(device, store, seed);
  std::vector<float> wide(state.masters().begin(), state.masters().end());
  for (auto& gradient : store.gradients()) gradient = 1.0f;
  const float rate = 0x1p-14f;
  CHECK(static_cast<float>(T(1.0f - rate)) == 1.0f);  // each step alone rounds away
  for (Index step = 1; step <= 256; ++step) {
    state.update(Sgd{}, store.parameters(), store.gradients(), rate, 1.0, step);
    for (float& weight : wide) weight -= rate;
  }
  for_elements(store, [&](std::size_t at, std::size_t master, const parallel::LocalParameter& parameter) {
    CHECK(state.masters()[master] == wide[master]);
    CHECK(store.parameters()[at].bits() == T(wide[master]).bits());
    if (parameter.name == "matrix.weight") CHECK(static_cast<float>(store.parameters()[at]) == 1.0f - 256 * rate);
  });
}

TEST_CASE("float and double are updated in place, without master weights") {
  Host device;
  train::OptimizerState<AdamW, float, Host> narrow(device, store_of<Serial, float>(device), seed);
  train::OptimizerState<AdamW, double, Host> wide(device, store_of<Serial, double>(device), seed);
  const Index elements = store_of<Serial, float>(device).plan().parameter_size();
  CHECK(narrow.bytes() == 2 * elements * Index{4});
  CHECK(wide.bytes() == 2 * elements * Index{8});
  CHECK_FALSE(train::OptimizerState<AdamW, float, Host>::has_master);
}

// fault D11
TEST_CASE_TEMPLATE("decay follows the description, not the name, also in shards that begin inside a parameter", Format,
                   float, double, dtrain::bfloat16, float16, Precision<dtrain::bfloat16, dtrain::bfloat16>) {
  using T = typename PrecisionOf<Format>::Parameter;
  using Sharded = Strategy<DataParallel<3, Zero<1>>>;
  Host device;
  int updated = 0;
  for (const int rank : {0, 1, 2}) {
    auto store = store_of<Sharded, Format>(device, 3, rank);
    train::OptimizerState<AdamW, Format, Host> state(device, store, seed);
    for (T& parameter : store.parameters()) parameter = T(1.0f);
    if constexpr (PrecisionOf<Format>::has_master)
      for (float& master : state.masters()) master = 1.0f;
    state.update(AdamW{.weight_decay = 0.1}, store.parameters(), store.gradients(), 0.1, 1.0, 1);
    for_elements(store, [&](std::size_t at, std::size_t master, const parallel::LocalParameter& parameter) {
      const auto value = static_cast<double>(store.parameters()[at]);
      const bool matrix = parameter.name == "norm.bias.weight";
      CHECK(value == doctest::Approx(matrix ? 0.99 : 1.0).epsilon(matrix && sizeof(T) == 2 ? 0x1p-8 : 1e-7));
      if constexpr (PrecisionOf<Format>::has_master)
        CHECK(static_cast<double>(state.masters()[master]) == doctest::Approx(matrix ? 0.99 : 1.0).epsilon(1e-7));
      ++updated;
    });
  }
  CHECK(updated == 8 + 8 + 6 * 8 + 6);
}
