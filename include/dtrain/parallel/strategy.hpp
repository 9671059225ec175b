// A strategy: one policy per axis of the mesh, as a type.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>

#include "dtrain/parallel/chunked_loss.hpp"
#include "dtrain/parallel/policies.hpp"
#include "dtrain/parallel/recompute.hpp"

namespace dtrain::parallel {

/// How many of the policies stand on the axis of `P`.
template <class P, class... Policies>
inline constexpr int policies_on_axis_of =
    (0 + ... + (std::is_same_v<typename P::Axis, typename Policies::Axis> ? 1 : 0));

/// No two policies share an axis.
template <class... Policies>
concept OnePolicyPerAxis = ((policies_on_axis_of<Policies, Policies...> == 1) && ...);

/// At most one of a strategy's degrees, `Count` of which are dynamic, is left to the launch.
template <int Count>
concept OneDynamicDegree = Count <= 1;

namespace detail {

template <class Axis>
struct DefaultPolicy;
template <>
struct DefaultPolicy<axes::Tensor> {
  using type = TensorParallel<1>;
};
template <>
struct DefaultPolicy<axes::Data> {
  using type = DataParallel<1>;
};
template <>
struct DefaultPolicy<axes::Pipeline> {
  using type = PipelineParallel<1>;
};

template <class Axis, class... Policies>
struct FindPolicy : DefaultPolicy<Axis> {};
template <class Axis, class First, class... Rest>
struct FindPolicy<Axis, First, Rest...> : std::conditional_t<std::is_same_v<typename First::Axis, Axis>,
                                                             std::type_identity<First>, FindPolicy<Axis, Rest...>> {};

}  // namespace detail

/// Policies in a list.
template <class... Policies>
struct PolicyList {
  static constexpr int size = sizeof...(Policies);
};

namespace detail {

template <class... Left, class... Right>
constexpr PolicyList<Left..., Right...> operator+(PolicyList<Left...>, PolicyList<Right...>) {
  return {};
}

/// Those that split the batch over more than one rank.
template <class... Policies>
using BatchPolicies = decltype((
    PolicyList<>{} + ... +
    std::conditional_t<Policies::Axis::splits_batch && Policies::degree != 1, PolicyList<Policies>, PolicyList<>>{}));

}  // namespace detail

/// Parts of a strategy that stand on no axis.
template <class P>
concept RecomputationOption = requires {
  { P::recomputation } -> std::convertible_to<RecomputationRule>;
  { P::describe() } -> std::convertible_to<std::string>;
};
template <class P>
concept LossOption = requires {
  { P::loss_rows } -> std::convertible_to<Index>;
  { P::describe() } -> std::convertible_to<std::string>;
};
template <class P>
concept ProgramOption = RecomputationOption<P> || LossOption<P>;

/// A strategy says at most once what is recomputed.
template <int Count>
concept AtMostOneRecomputation = Count <= 1;

/// A strategy says at most once in how many rows the loss is computed.
template <int Count>
concept AtMostOneChunkedLoss = Count <= 1;

namespace detail {

template <class... Parts>
using AxisPolicies =
    decltype((PolicyList<>{} + ... + std::conditional_t<Policy<Parts>, PolicyList<Parts>, PolicyList<>>{}));

// The axes of a strategy.
template <class List>
struct StrategyAxes;
template <class... Policies>
struct StrategyAxes<PolicyList<Policies...>> {
  static_assert(OnePolicyPerAxis<Policies...>, "dtrain: a strategy names the same axis twice");
  static_assert(OneDynamicDegree<(0 + ... + (Policies::degree == dynamic ? 1 : 0))>,
                "dtrain: the launch can decide one degree of a strategy, not several");

  template <class Axis>
  using On = typename FindPolicy<Axis, Policies...>::type;
  using Tensor = On<axes::Tensor>;
  using Data = On<axes::Data>;
  using Pipeline = On<axes::Pipeline>;

  using All = PolicyList<Policies...>;
  /// The policies along which the batch is dealt out and gradients are reduced.
  using Batch = BatchPolicies<Policies...>;

  /// The ranks that the static degrees make together.
  static constexpr int static_ranks = (1 * ... * (Policies::degree == dynamic ? 1 : Policies::degree));
  static constexpr bool has_dynamic = (false || ... || (Policies::degree == dynamic));
};

template <class P>
constexpr Index loss_rows_of() {
  if constexpr (LossOption<P>)
    return P::loss_rows;
  else
    return 0;
}
template <class P>
constexpr ShardingRule sharding_of() {
  if constexpr (ShardingOption<P>)
    return P::sharding;
  else
    return {};
}

}  // namespace detail

/// How a model is trained: at most one policy per axis, in any order, `Recompute` and `ChunkedLoss`; an axis that is
/// not named has degree 1.
template <class... Parts>
struct Strategy : detail::StrategyAxes<detail::AxisPolicies<Parts...>> {
  static_assert(((Policy<Parts> || ProgramOption<Parts>) && ...),
                "dtrain: a strategy is made of policies: DataParallel, TensorParallel, PipelineParallel, Recompute, "
                "ChunkedLoss, or your own");
  static_assert(AtMostOneRecomputation<(0 + ... + (RecomputationOption<Parts> ? 1 : 0))>,
                "dtrain: a strategy names Recompute twice; give it everything at once");
  static_assert(AtMostOneChunkedLoss<(0 + ... + (LossOption<Parts> ? 1 : 0))>,
                "dtrain: a strategy names ChunkedLoss twice; one number of rows holds for all");

  /// What ranks along the data axis share out.
  static constexpr ShardingRule sharding = detail::sharding_of<typename Strategy::Data>();
  static constexpr RecomputationRule recomputation = [] {
    RecomputationRule rule;
    [[maybe_unused]] const auto take = [&]<class P>(std::type_identity<P>) {
      if constexpr (RecomputationOption<P>) {
        rule = P::recomputation;
      }
    };
    (take(std::type_identity<Parts>{}), ...);
    return rule;
  }();
  /// Rows of a chunk of logits; 0: those of the whole micro-batch at once.
  static constexpr Index loss_rows = (Index{0} + ... + detail::loss_rows_of<Parts>());

  /// "DataParallel<2> x TensorParallel<2>"; "Serial" for the strategy of one rank.
  static std::string describe() {
    std::string text;
    [[maybe_unused]] const auto add = [&](const std::string& policy) { text += (text.empty() ? "" : " x ") + policy; };
    (add(Parts::describe()), ...);
    return text.empty() ? "Serial" : text;
  }
};

/// The strategy of one rank.
using Serial = Strategy<>;

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::Serial;
using parallel::Strategy;
}  // namespace dtrain
