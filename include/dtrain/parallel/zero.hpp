// ZeRO as options of data parallelism: what its ranks share out, in groups of how many.
#pragma once

#include <concepts>
#include <type_traits>

namespace dtrain::parallel {

/// What ranks along the data axis share out instead of each holding all of it, and in groups of how many ranks.
struct ShardingRule {
  int level = 0;     ///< 0: nothing; 1: optimizer state; 2: gradients too; 3: parameters too
  int within = 0;    ///< ranks of a group; 0: all of the axis
  int prefetch = 1;  ///< level 3: units that are gathered ahead of the one at work

  [[nodiscard]] constexpr bool shards_optimizer() const { return level >= 1; }
  [[nodiscard]] constexpr bool shards_gradients() const { return level >= 2; }
  [[nodiscard]] constexpr bool shards_parameters() const { return level >= 3; }
  /// Ranks of a group where the axis has `size`.
  [[nodiscard]] constexpr int ranks(int size) const { return level == 0 ? 1 : within == 0 ? size : within; }
  friend constexpr bool operator==(const ShardingRule&, const ShardingRule&) = default;
};

/// Shards lie within groups of `Ranks` neighbours along the data axis and are replicated across groups (hybrid
/// sharding), so that gathers stay on a node.
template <int Ranks>
struct ShardWithin {
  static_assert((Ranks >= 1), "dtrain: a group of ranks that shards parameters needs at least 1 of them");
  static constexpr int ranks = Ranks;
};

/// How many units (blocks, for a transformer) are gathered ahead of the one at work; 0: none.
template <int Units>
struct Prefetch {
  static_assert(Units >= 0, "dtrain: the number of units gathered ahead must not be negative");
  static constexpr int units = Units;
};

/// ZeRO has three levels.
template <int Level>
concept ZeroLevel = Level >= 1 && Level <= 3;

/// An option of ZeRO.
template <class Option>
concept ZeroOption = requires { Option::ranks; } || requires { Option::units; };

/// S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020: ranks along the
/// data axis share out the optimizer's state (level 1), the gradients (2) and the parameters (3).
/// Options: `ShardWithin`, `Prefetch` (level 3).
template <int Level, class... Options>
struct Zero {
  static_assert(ZeroLevel<Level>, "dtrain: ZeRO has the levels 1, 2 and 3");
  static_assert((ZeroOption<Options> && ...), "dtrain: Zero takes no option but ShardWithin and Prefetch");
  static constexpr ShardingRule sharding = [] {
    ShardingRule rule{.level = Level};
    [[maybe_unused]] const auto take = [&]<class Option>(std::type_identity<Option>) {
      if constexpr (requires { Option::ranks; }) {
        rule.within = Option::ranks;
      }
      if constexpr (requires { Option::units; }) {
        rule.prefetch = Option::units;
      }
    };
    (take(std::type_identity<Options>{}), ...);
    return rule;
  }();
};

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::Prefetch;
using parallel::ShardWithin;
using parallel::Zero;
}  // namespace dtrain
