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

/// Shards lie within groups of at least one rank.
template <int Ranks>
concept PositiveGroup = Ranks >= 1;

/// Shards lie within groups of `Ranks` neighbours along the data axis and are replicated across groups (hybrid
/// sharding), so that gathers stay on a node.
template <int Ranks>
struct ShardWithin {
  static_assert(PositiveGroup<Ranks>, "dtrain: a group of ranks that shards parameters needs at least 1 of them");
  static constexpr int ranks = Ranks;
};

/// Units are gathered ahead of the one at work, or none are.
template <int Units>
concept UnitsAhead = Units >= 0;

/// How many units (blocks, for a transformer) are gathered ahead of the one at work; 0: none.
template <int Units>
struct Prefetch {
  static_assert(UnitsAhead<Units>, "dtrain: the number of units gathered ahead must not be negative");
  static constexpr int units = Units;
};

/// ZeRO has three levels.
template <int Level>
concept ZeroLevel = Level >= 1 && Level <= 3;

namespace detail {
template <class Option>
concept GroupOption = requires { Option::ranks; };
template <class Option>
concept PrefetchOption = requires { Option::units; };
}  // namespace detail

/// An option of ZeRO.
template <class Option>
concept ZeroOption = detail::GroupOption<Option> || detail::PrefetchOption<Option>;

/// A kind of option is given at most once.
template <int Count>
concept GivenOnce = Count <= 1;

/// Only where ranks share out parameters is there anything to gather ahead: at level 3.
template <int Level, int Prefetches>
concept PrefetchHasParameters = bool(Prefetches == 0 || Level == 3);

/// S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020: ranks along the
/// data axis share out the optimizer's state (level 1), the gradients (2) and the parameters (3).
/// Options: `ShardWithin`, `Prefetch` (level 3).
template <int Level, class... Options>
struct Zero {
  static_assert(ZeroLevel<Level>, "dtrain: ZeRO has the levels 1, 2 and 3");
  static_assert((ZeroOption<Options> && ...), "dtrain: Zero takes no option but ShardWithin and Prefetch");
  static_assert(GivenOnce<(0 + ... + int(detail::GroupOption<Options>))> &&
                    GivenOnce<(0 + ... + int(detail::PrefetchOption<Options>))>,
                "dtrain: Zero is given an option twice");
  static_assert(PrefetchHasParameters<Level, (0 + ... + int(detail::PrefetchOption<Options>))>,
                "dtrain: Prefetch goes with level 3 of Zero: below it every rank holds all parameters");
  static constexpr ShardingRule sharding = [] {
    ShardingRule rule{.level = Level};
    [[maybe_unused]] const auto take = [&]<class Option>(std::type_identity<Option>) {
      if constexpr (detail::GroupOption<Option>) {
        rule.within = Option::ranks;
      }
      if constexpr (detail::PrefetchOption<Option>) {
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
