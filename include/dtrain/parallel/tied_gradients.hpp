// Sums the gradients of tied parameters over the chunks that hold them.
#pragma once

#include <span>
#include <vector>

#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/parameter_store.hpp"
#include "dtrain/parallel/stages.hpp"

namespace dtrain::parallel {

/// A tied parameter whose user and owner are on different chunks has a copy with the user. Both are cut into the same
/// shards, so that equal places along the other axes sum what they keep of it.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class TiedGradients {
  using Store = ParameterStore<Lowered, Format, Device>;
  using Axes = AxisCommunicators<S, C>;
  using Cuts = Stages<Lowered, S>;
  using G = typename PrecisionOf<Format>::Gradient;

 public:
  /// Collective over the world. `stores` are those of this rank's chunks.
  TiedGradients(Device& device, Axes& axes, const std::vector<Store*>& stores) : device_(device) {
    if constexpr (Cuts::count > 1)
      for (const Tie& tie : Lowered::ties) join(axes, stores, tie);
  }

  /// The data axis has reduced the gradients.
  void finish() {
    for (Pair& pair : pairs_)
      for (Index g = 0; g < pair.groups.size(); ++g) {
        const auto own = shard(*pair.first, pair.groups.begin + g);
        if (pair.second == nullptr) {
          pair.communicator->all_reduce(own).wait();
        } else {
          const auto other = shard(*pair.second, pair.second_groups + g);
          ops::accumulate(device_, std::span<const G>(own), other);
          device_.copy(std::span<const G>(other), own);
        }
      }
  }

 private:
  // Both holders on this rank, or one here and the communicator to the other.
  struct Pair {
    Store* first = nullptr;
    Store* second = nullptr;
    Range groups{};
    Index second_groups = 0;
    std::optional<C> communicator{};
  };

  static std::span<G> shard(Store& store, Index group) { return store.gradient_shard(store.sharding().group(group)); }
  static Range groups_of(const Store& store, const Tie& tie) {
    return store.sharding().groups_of(store.plan().tied_range(tie));
  }

  [[gnu::cold]] void join(Axes& axes, const std::vector<Store*>& stores, const Tie& tie) {
    constexpr schedule::VirtualPipeline pipeline = S::Pipeline::pipeline;
    const auto place_of = [&](int element) {
      return pipeline.place(Cuts::stage_of(Lowered::table[static_cast<std::size_t>(element)].first_unit));
    };
    const schedule::Place owner = place_of(tie.owner);
    const schedule::Place user = place_of(tie.user);
    if (owner == user) return;
    const Coordinate here = axes.mesh().template along<axes::Pipeline>();
    const auto store_at = [&](schedule::Place place) { return stores[static_cast<std::size_t>(place.chunk)]; };
    if (owner.stage == user.stage) {
      if (here.rank != owner.stage) return;
      Pair pair{.first = store_at(owner), .second = store_at(user)};
      pair.groups = groups_of(*pair.first, tie);
      pair.second_groups = groups_of(*pair.second, tie).begin;
      pairs_.push_back(std::move(pair));
      return;
    }
    const bool member = here.rank == owner.stage || here.rank == user.stage;
    auto group =
        axes.world().split(member ? axes.mesh().template group<axes::Pipeline>() : -1, here.rank, "tied parameters");
    if (!group) return;
    Pair pair{.first = store_at(here.rank == owner.stage ? owner : user), .communicator = std::move(group)};
    pair.groups = groups_of(*pair.first, tie);
    pairs_.push_back(std::move(pair));
  }

  Device& device_;
  std::vector<Pair> pairs_{};
};

}  // namespace dtrain::parallel
