// Whole gradients of the unit at work, reduced and scattered to the ranks that keep them: ZeRO 2 and 3.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/parallel/shard_communicators.hpp"
#include "dtrain/parallel/stage.hpp"

namespace dtrain::parallel {

/// Two buffers that all chunks of a rank take in turn: while one is filled, the other one is reduced.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class GradientScatter {
  using Store = ParameterStore<Lowered, Format, Device>;
  using Shared = Workspace<Lowered, Format, Device>;
  using Communicators = ShardCommunicators<S, C>;
  using Handle = typename PolicyCommunicator<typename S::Data, C>::Handle;
  using G = typename PrecisionOf<Format>::Gradient;
  using R = ReductionType<typename S::Data, G>;
  static constexpr bool converts = !std::is_same_v<R, G>;

 public:
  GradientScatter(Device& device, Shared& workspace, Communicators& communicators)
      : device_(device), workspace_(workspace), communicators_(communicators) {}

  /// A buffer of zeros for the gradients of one unit.
  [[nodiscard]] std::span<G> acquire(Index elements) {
    settle(pending_[static_cast<std::size_t>(turn_)]);
    auto buffer = workspace_.bucket(turn_).first(static_cast<std::size_t>(elements));
    device_.fill(buffer, G(0.0f));
    return buffer;
  }
  /// Begins to reduce the buffer acquired last: `parts` are parts of the store's region, one behind the other.
  void scatter(Store& store, std::span<const Range> parts) {
    Pending& pending = pending_[static_cast<std::size_t>(turn_)];
    auto buffer = workspace_.bucket(turn_);
    Index at = 0;
    for (const Range& part : parts) {
      const Range groups = store.sharding().groups_of(part);
      for (Index g = groups.begin; g < groups.end; ++g) {
        const ShardGroup& group = store.sharding().group(g);
        const auto whole = buffer.subspan(static_cast<std::size_t>(at + group.whole.begin - part.begin),
                                          static_cast<std::size_t>(group.whole.size()));
        const std::span<R> reduced = converted(whole, at + group.whole.begin - part.begin);
        const auto shard = reduced.subspan(static_cast<std::size_t>(group.shard.begin - group.whole.begin),
                                           static_cast<std::size_t>(group.shard.size()));
        pending.arriving.push_back({shard, store.gradient_shard(group)});
        pending.handles.push_back(communicators_.shard().reduce_scatter(std::span<const R>(reduced), shard,
                                                                        std::span<const Index>(group.counts)));
      }
      at += part.size();
    }
    turn_ = (turn_ + 1) % gradient_buffers;
  }
  /// Sums what is kept of every group over the ranks that hold the same shard, when nothing is under way.
  void sum_replicas(Store& store) {
    if constexpr (converts) {
      for (const ShardGroup& group : store.sharding().groups()) {
        const std::span<G> kept = store.gradient_shard(group);
        const std::span<R> reduced = converted(kept, 0);
        communicators_.replicas().all_reduce(reduced).wait();
        ops::cast(device_, reduced, kept);
      }
    } else {
      communicators_.replicas().all_reduce(store.gradients()).wait();
    }
  }
  /// Waits until every gradient lies where it is kept.
  void finish() {
    for (Pending& pending : pending_) settle(pending);
  }

 private:
  // The gradients as they are reduced: themselves, or converted into the buffer of this turn.
  std::span<R> converted(std::span<G> gradients, [[maybe_unused]] Index at) {
    if constexpr (converts) {
      const auto target =
          workspace_.template converted_bucket<R>(turn_).subspan(static_cast<std::size_t>(at), gradients.size());
      ops::cast(device_, gradients, target);
      return target;
    } else {
      return gradients;
    }
  }

  struct Pending {
    std::vector<Handle> handles;
    std::vector<std::pair<std::span<R>, std::span<G>>> arriving;  ///< shard of the buffer, where it is added
  };

  void settle(Pending& pending) {
    for (std::size_t i = 0; i < pending.handles.size(); ++i) {
      pending.handles[i].wait();
      const auto [shard, kept] = pending.arriving[i];
      ops::accumulate(device_, std::span<const R>(shard), kept);
    }
    pending.handles.clear();
    pending.arriving.clear();
  }

  Device& device_;
  Shared& workspace_;
  Communicators& communicators_;
  std::array<Pending, gradient_buffers> pending_{};
  int turn_ = 0;
};

}  // namespace dtrain::parallel
