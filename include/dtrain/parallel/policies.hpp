// The policies of training: how the work is cut along one axis of the mesh.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/nn/layout.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/zero.hpp"

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

namespace detail {
template <class P, class G>
struct FindReductionType {
  using type = G;
};
template <class P, class G>
  requires(std::is_same_v<typename P::Axis, axes::Data> && requires { typename P::template Reduced<G>; })
struct FindReductionType<P, G> {
  using type = typename P::template Reduced<G>;
};
}  // namespace detail

/// The type in which policy `P` reduces gradients of type `G`: their own, unless the policy of the data axis names
/// another as `Reduced<G>`.
template <class P, class G>
using ReductionType = typename detail::FindReductionType<P, G>::type;

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

/// Gradients are summed over the data axis in numbers of type `R`, whatever their own: each rank converts its own once,
/// and what has been summed is converted back once.
template <Scalar R>
struct Reduce {
  using Number = R;
};

namespace detail {
template <class Option>
concept ReduceOption = requires { typename Option::Number; };
template <class G, class... Options>
struct ReducedIn {
  using type = G;
};
template <class G, class First, class... Rest>
struct ReducedIn<G, First, Rest...> : ReducedIn<G, Rest...> {};
template <class G, Scalar R, class... Rest>
struct ReducedIn<G, Reduce<R>, Rest...> {
  using type = R;
};
template <class Option>
concept ShardingOption = requires {
  { Option::sharding } -> std::convertible_to<ShardingRule>;
};
template <class Option>
concept DataOption = BucketOption<Option> || ShardingOption<Option> || ReduceOption<Option>;
}  // namespace detail

/// The groups that shard parameters divide the data axis.
template <int Ranks, int Degree>
concept GroupsDivideTheAxis = bool(Degree == dynamic || Ranks == 0 || Degree % Ranks == 0);

/// Buckets are what gradients are reduced in where they are not sharded.
template <int Buckets, int Shardings>
concept BucketsAreReduced = bool(Buckets == 0 || Shardings == 0);

/// The batch is cut across `Degree` ranks (or `dynamic`), which hold the same parameters and sum their gradients.
/// Options: `BucketBytes`, `Reduce`, `Zero`.
template <int Degree, class... Options>
struct DataParallel {
  static_assert(Degree == dynamic || PositiveDegree<Degree>,
                "dtrain: the degree of data parallelism must be at least 1, or dynamic");
  static_assert((detail::DataOption<Options> && ...),
                "dtrain: DataParallel takes no option but BucketBytes, Reduce and Zero");
  static_assert(GivenOnce<(0 + ... + int(BucketOption<Options>))> &&
                    GivenOnce<(0 + ... + int(detail::ReduceOption<Options>))> &&
                    GivenOnce<(0 + ... + int(detail::ShardingOption<Options>))>,
                "dtrain: DataParallel is given an option twice");
  static_assert(
      BucketsAreReduced<(0 + ... + int(BucketOption<Options>)), (0 + ... + int(detail::ShardingOption<Options>))>,
      "dtrain: BucketBytes has no effect under Zero, which reduces gradients unit by unit");
  using Axis = axes::Data;
  static constexpr int degree = Degree;
  /// Unless an option says otherwise: 25 MB, as PyTorch's DistributedDataParallel.
  static constexpr long long bucket_bytes = [] {
    long long bytes = 25'000'000;
    [[maybe_unused]] const auto take = [&]<class Option>(std::type_identity<Option>) {
      if constexpr (BucketOption<Option>) {
        bytes = Option::bytes;
      }
    };
    (take(std::type_identity<Options>{}), ...);
    return bytes;
  }();
  static constexpr ShardingRule sharding = [] {
    ShardingRule rule{};
    [[maybe_unused]] const auto take = [&]<class Option>(std::type_identity<Option>) {
      if constexpr (detail::ShardingOption<Option>) {
        rule = Option::sharding;
      }
    };
    (take(std::type_identity<Options>{}), ...);
    // One rank has nothing to share out.
    return Degree == 1 ? ShardingRule{} : rule;
  }();
  static_assert(GroupsDivideTheAxis<sharding.within, Degree>,
                "dtrain: the degree of data parallelism is no multiple of the ranks that Zero shards within");
  /// The type that gradients of type `G` are reduced in.
  template <Scalar G>
  using Reduced = std::conditional_t<Degree == 1, G, typename detail::ReducedIn<G, Options...>::type>;
  /// What `reduce` is called in reports.
  static constexpr std::string_view collective = "all-reduce";
  template <class C, class T>
  static typename C::Handle reduce(C& communicator, std::span<T> gradients) {
    return communicator.all_reduce(gradients);
  }
  static std::string describe() {
    std::string text = "DataParallel<";
    text += Degree == dynamic ? std::string("dynamic") : concatenate(Degree);
    if (sharding.level > 0) text += concatenate(", Zero<", sharding.level);
    if (sharding.within > 0) text += concatenate(", ShardWithin<", sharding.within, ">");
    if (sharding.prefetch != ShardingRule{}.prefetch) text += concatenate(", Prefetch<", sharding.prefetch, ">");
    if (sharding.level > 0) text += ">";
    [[maybe_unused]] const auto add = [&]<class Option>(std::type_identity<Option>) {
      if constexpr (detail::ReduceOption<Option>) {
        text += concatenate(", Reduce<", scalar_name<typename Option::Number>(), ">");
      }
    };
    (add(std::type_identity<Options>{}), ...);
    return text + ">";
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

/// A stage holds at least one chunk.
template <int Count>
concept PositiveChunks = Count >= 1;

/// Each stage holds `Count` runs of layers instead of one.
template <int Count>
struct Chunks {
  static_assert(PositiveChunks<Count>, "dtrain: a stage of a pipeline holds at least one chunk of layers");
  static constexpr int chunks = Count;
};

/// An option of pipeline parallelism.
template <class Option>
concept ChunksOption = requires {
  { Option::chunks } -> std::convertible_to<int>;
};

/// Schedule `S` can run with `Count` chunks on each stage, `Given` of which an option names (0: none).
template <class S, int Count, int Given>
concept ChunksFit = !schedule::Schedule<S> || (schedule::TakesChunks<S> ? Given > 0 : Count == schedule::own_chunks<S>);

/// The layers are cut into `Degree` stages, which work on micro-batches in the order of `S`. Options: `Chunks`, for
/// schedules that take any number of chunks per stage.
template <int Degree, class S = schedule::OneForwardOneBackward, class... Options>
struct PipelineParallel {
  static_assert(PositiveDegree<Degree>, "dtrain: the degree of pipeline parallelism must be at least 1");
  static_assert((ChunksOption<Options> && ...), "dtrain: PipelineParallel takes no option but Chunks");
  static_assert(GivenOnce<int(sizeof...(Options))>, "dtrain: PipelineParallel is given Chunks twice");
  using Axis = axes::Pipeline;
  using Schedule = S;
  static constexpr int degree = Degree;
  /// How many runs of layers each stage holds.
  static constexpr int chunks = [] {
    int count = schedule::own_chunks<S>;
    ((count = Options::chunks), ...);
    return count;
  }();
  static_assert(ChunksFit<S, chunks, (0 + ... + Options::chunks)>,
                "dtrain: the option Chunks goes with schedules that take any number of chunks, and they need it; other "
                "schedules bring their own");
  static_assert(schedule::RequireSoundSchedule<S, (Degree > 1 ? Degree : 1), chunks>::value);
  /// Where the chunks lie.
  static constexpr schedule::Placement placement = schedule::own_placement<S>;
  static constexpr int virtual_stages = degree * chunks;
  static constexpr schedule::VirtualPipeline pipeline{Degree, chunks, placement};
  static std::string describe() {
    return concatenate("PipelineParallel<", Degree, ", ", std::string_view(S::name),
                       sizeof...(Options) > 0 ? concatenate(", Chunks<", chunks, ">") : std::string(), ">");
  }
};

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::BucketBytes;
using parallel::Chunks;
using parallel::DataParallel;
using parallel::dynamic;
using parallel::PipelineParallel;
using parallel::Reduce;
using parallel::SequenceParallel;
using parallel::TensorParallel;
}  // namespace dtrain
