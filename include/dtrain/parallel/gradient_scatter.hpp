// Whole gradients of the unit at work, reduced and scattered to the ranks that keep them: ZeRO 2 and 3.
#pragma once

#include <array>
#include <span>
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
        const auto shard = whole.subspan(static_cast<std::size_t>(group.shard.begin - group.whole.begin),
                                         static_cast<std::size_t>(group.shard.size()));
        pending.arriving.push_back({shard, store.gradient_shard(group)});
        pending.handles.push_back(communicators_.shard().reduce_scatter(std::span<const G>(whole), shard,
                                                                        std::span<const Index>(group.counts)));
      }
      at += part.size();
    }
    turn_ = (turn_ + 1) % gradient_buffers;
  }
  /// Waits until every gradient lies where it is kept.
  void finish() {
    for (Pending& pending : pending_) settle(pending);
  }

 private:
  struct Pending {
    std::vector<Handle> handles;
    std::vector<std::pair<std::span<G>, std::span<G>>> arriving;  ///< shard of the buffer, where it is added
  };

  void settle(Pending& pending) {
    for (std::size_t i = 0; i < pending.handles.size(); ++i) {
      pending.handles[i].wait();
      const auto [shard, kept] = pending.arriving[i];
      ops::accumulate(device_, std::span<const G>(shard), kept);
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
