// The communicators of ranks that share out parameters under ZeRO: within a group, and across groups.
#pragma once

#include <optional>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/mesh.hpp"

namespace dtrain::parallel {

/// The data axis of a strategy, cut into groups of ranks that hold all shards together; ranks of the same place in
/// different groups hold the same shard.
template <class S, class C>
class ShardCommunicators {
  using Axes = AxisCommunicators<S, C>;
  using Along = PolicyCommunicator<typename S::Data, C>;
  static constexpr ShardingRule rule = S::sharding;

 public:
  /// Collective over the world. Throws ConfigurationError when the groups do not divide the axis.
  explicit ShardCommunicators(Axes& axes) : axes_(axes) {
    if constexpr (rule.within > 0) {
      const Coordinate place = axes.mesh().template along<axes::Data>();
      if (place.size % rule.within != 0)
        throw ConfigurationError(concatenate("dtrain: strategy ", S::describe(), " shards within groups of ",
                                             rule.within, " ranks, which do not divide its ", place.size,
                                             " data-parallel ranks; start a multiple of them."));
      auto& data = axes.template on<axes::Data>();
      shard_ = data.split(place.rank / rule.within, place.rank, "shards");
      replicas_ = data.split(place.rank % rule.within, place.rank, "replicas of shards");
    }
  }

  /// Where this rank stands among those that share out parameters; alone below level 1.
  [[nodiscard]] static constexpr Coordinate place(const Mesh<S>& mesh) {
    if (rule.level == 0) return {};
    const Coordinate place = mesh.template along<axes::Data>();
    return rule.within == 0 ? place : Coordinate{place.rank % rule.within, rule.within};
  }
  /// The ranks that hold all shards together.
  [[nodiscard]] Along& shard() {
    if constexpr (rule.within > 0)
      return *shard_;
    else
      return axes_.template on<axes::Data>();
  }
  static constexpr bool has_replicas = rule.within > 0;
  /// The ranks that hold the same shard.
  [[nodiscard]] Along& replicas() { return *replicas_; }

 private:
  Axes& axes_;
  std::optional<Along> shard_{};
  std::optional<Along> replicas_{};
};

}  // namespace dtrain::parallel
