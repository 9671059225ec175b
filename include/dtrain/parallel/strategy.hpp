// A strategy: one policy per axis of the mesh, as a type.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/nn/layout.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"

namespace dtrain::parallel {

/// A degree that the launch decides: the ranks there are, divided by the other degrees.
inline constexpr int dynamic = 0;

/// The axes of the mesh. Ranks are numbered along the axis of the lowest `order` first, so that tensor groups share a
/// node. A new axis is a new tag with an order of its own; along an axis that `splits_batch`, each rank takes its share
/// of the batch, and the axis's policy reduces the gradients.
namespace axes {
struct Tensor {
  static constexpr int order = 0;
  static constexpr bool splits_batch = false;
  static constexpr std::string_view name = "tensor";
};
struct Data {
  static constexpr int order = 200;
  static constexpr bool splits_batch = true;
  static constexpr std::string_view name = "data";
};
struct Pipeline {
  static constexpr int order = 300;
  static constexpr bool splits_batch = false;
  static constexpr std::string_view name = "pipeline";
};
}  // namespace axes

/// A policy cuts the work of training along one axis.
template <class P>
concept Policy = requires {
  typename P::Axis;
  { P::degree } -> std::convertible_to<int>;
  { P::Axis::order } -> std::convertible_to<int>;
  { P::Axis::splits_batch } -> std::convertible_to<bool>;
  { P::Axis::name } -> std::convertible_to<std::string_view>;
  { P::describe() } -> std::convertible_to<std::string>;
};

/// A policy of an axis that splits the batch also says how gradients, each a sum over its rank's share, become the sum
/// over all shares: `reduce(communicator, gradients)` begins it and returns a handle to wait for it, the communicator's
/// or one of its own that has more to do when the bytes are there. It is called for buckets of about `bucket_bytes`
/// while the backward pass goes on.
template <class P, class C>
concept ReducesGradients = Policy<P> && requires(C& communicator, std::span<float> gradients) {
  { P::reduce(communicator, gradients) } -> comm::PendingOperation;
  { P::bucket_bytes } -> std::convertible_to<long long>;
};

/// What `reduce` of policy `P` returns for gradients of type `T`.
template <class P, class C, class T>
using ReductionHandle = decltype(P::reduce(std::declval<C&>(), std::declval<std::span<T>>()));

/// A degree is a number of ranks, or `dynamic` where the policy allows it.
template <int Degree>
concept PositiveDegree = Degree >= 1;

/// A size in bytes is a positive number.
template <long long Bytes>
concept PositiveBytes = Bytes > 0;

/// Gradient buckets of `Bytes` bytes: each is reduced as soon as the backward pass has filled it.
template <long long Bytes>
struct BucketBytes {
  static_assert(PositiveBytes<Bytes>, "dtrain: a gradient bucket needs a size above 0");
  static constexpr long long bytes = Bytes;
};

/// An option of data parallelism.
template <class Option>
concept BucketOption = requires {
  { Option::bytes } -> std::convertible_to<long long>;
};

/// The batch is cut across `Degree` ranks (or `dynamic`), which hold the same parameters and sum their gradients.
/// Options: `BucketBytes`.
template <int Degree, class... Options>
struct DataParallel {
  static_assert(Degree == dynamic || PositiveDegree<Degree>,
                "dtrain: the degree of data parallelism must be at least 1, or dynamic");
  static_assert((BucketOption<Options> && ...), "dtrain: DataParallel takes no option but BucketBytes");
  using Axis = axes::Data;
  static constexpr int degree = Degree;
  /// Unless an option says otherwise: 25 MB, as PyTorch's DistributedDataParallel.
  static constexpr long long bucket_bytes = [] {
    long long bytes = 25'000'000;
    ((bytes = Options::bytes), ...);
    return bytes;
  }();
  /// What `reduce` is called in reports.
  static constexpr std::string_view collective = "all-reduce";
  template <class C, class T>
  static typename C::Handle reduce(C& communicator, std::span<T> gradients) {
    return communicator.all_reduce(gradients);
  }
  static std::string describe() {
    return Degree == dynamic ? "DataParallel<dynamic>" : concatenate("DataParallel<", Degree, ">");
  }
};

/// Between the cut matrix products of tensor parallelism, the residual stream is cut by rows (V. Korthikanti et al.,
/// "Reducing activation recomputation in large transformer models", 2022, section 4.2.2).
struct SequenceParallel {};

/// Every layer that can be is cut across `Degree` ranks. Options: `SequenceParallel`.
template <int Degree, class... Options>
struct TensorParallel {
  static_assert(PositiveDegree<Degree>, "dtrain: the degree of tensor parallelism must be at least 1");
  static_assert((std::is_same_v<Options, SequenceParallel> && ...),
                "dtrain: TensorParallel takes no option but SequenceParallel");
  using Axis = axes::Tensor;
  static constexpr int degree = Degree;
  static constexpr bool sequence_parallel = sizeof...(Options) > 0;
  static constexpr nn::TensorAxis axis{Degree, sequence_parallel&& Degree > 1};
  static std::string describe() {
    return concatenate("TensorParallel<", Degree, sequence_parallel ? ", SequenceParallel>" : ">");
  }
};

/// The layers are cut into `Degree` stages, which work on micro-batches in the order of `S`.
template <int Degree, class S = schedule::OneForwardOneBackward>
struct PipelineParallel {
  static_assert(PositiveDegree<Degree>, "dtrain: the degree of pipeline parallelism must be at least 1");
  static_assert(schedule::RequireSoundSchedule<S, (Degree > 1 ? Degree : 1)>::value);
  using Axis = axes::Pipeline;
  using Schedule = S;
  static constexpr int degree = Degree;
  static std::string describe() {
    return concatenate("PipelineParallel<", Degree, ", ", std::string_view(S::name), ">");
  }
};

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

/// How a model is trained: at most one policy per axis, in any order; an axis that is not named has degree 1.
template <class... Policies>
struct Strategy {
  static_assert((Policy<Policies> && ...),
                "dtrain: a strategy is made of policies: DataParallel, TensorParallel, PipelineParallel, or your own");
  static_assert(OnePolicyPerAxis<Policies...>, "dtrain: a strategy names the same axis twice");
  static_assert(OneDynamicDegree<(0 + ... + (Policies::degree == dynamic ? 1 : 0))>,
                "dtrain: the launch can decide one degree of a strategy, not several");

  template <class Axis>
  using On = typename detail::FindPolicy<Axis, Policies...>::type;
  using Tensor = On<axes::Tensor>;
  using Data = On<axes::Data>;
  using Pipeline = On<axes::Pipeline>;

  using All = PolicyList<Policies...>;
  /// The policies along which the batch is dealt out and gradients are reduced.
  using Batch = detail::BatchPolicies<Policies...>;

  /// The ranks that the static degrees make together.
  static constexpr int static_ranks = (1 * ... * (Policies::degree == dynamic ? 1 : Policies::degree));
  static constexpr bool has_dynamic = (false || ... || (Policies::degree == dynamic));

  /// "DataParallel<2> x TensorParallel<2>"; "Serial" for the strategy of one rank.
  static std::string describe() {
    std::string text;
    [[maybe_unused]] const auto add = [&](const std::string& policy) { text += (text.empty() ? "" : " x ") + policy; };
    (add(Policies::describe()), ...);
    return text.empty() ? "Serial" : text;
  }
};

/// The strategy of one rank.
using Serial = Strategy<>;

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::BucketBytes;
using parallel::DataParallel;
using parallel::dynamic;
using parallel::PipelineParallel;
using parallel::SequenceParallel;
using parallel::Serial;
using parallel::Strategy;
using parallel::TensorParallel;
}  // namespace dtrain
