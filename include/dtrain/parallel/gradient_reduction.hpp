// Completes the gradients of a step over all axes, and takes their global norm.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/comm/agreement.hpp"
#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/parallel/gradient_buckets.hpp"
#include "dtrain/parallel/gradient_scatter.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/parameter_gather.hpp"

namespace dtrain::parallel {

namespace detail {
template <class List>
struct FirstPolicy {
  using type = DataParallel<1>;
};
template <class First, class... Rest>
struct FirstPolicy<PolicyList<First, Rest...>> {
  using type = First;
};
}  // namespace detail

/// Lends units their gradients and owns the order of reductions: within a unit over the tensor axis; then over the data
/// axis, in buckets of units or, under ZeRO, unit by unit to the ranks that keep them; at the end over the other axes
/// that split the batch and over the chunks that hold copies of tied parameters.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class GradientReduction {
  using G = typename PrecisionOf<Format>::Gradient;
  using Axes = AxisCommunicators<S, C>;
  using Store = ParameterStore<Lowered, Format, Device>;
  using Shards = ShardCommunicators<S, C>;
  using Scatter = GradientScatter<Lowered, S, Format, Device, C>;
  using Gather = ParameterGather<Lowered, S, Format, Device, C>;
  static constexpr ShardingRule rule = S::sharding;
  static constexpr bool splits_batch = S::Batch::size > 0;
  // Without ZeRO the first axis that splits the batch reduces in buckets while the backward pass goes on.
  static constexpr bool in_buckets = splits_batch && rule.level == 0;
  using FirstPolicy = typename detail::FirstPolicy<typename S::Batch>::type;
  // The type that the data axis reduces gradients in, and the one that buckets are reduced in.
  using R = ReductionType<typename S::Data, G>;
  using FirstReduced = ReductionType<FirstPolicy, G>;
  static_assert(!splits_batch || ReducesGradients<FirstPolicy, C>,
                "dtrain: the policy of an axis that splits the batch lacks reduce(communicator, gradients) or "
                "bucket_bytes");

 public:
  /// Collective over the world. Throws ConfigurationError when ranks along an axis that splits the batch hold different
  /// parameters.
  GradientReduction(Device& device, Store& store, Axes& axes, Shards& shards, Scatter& scatter)
      : device_(device),
        store_(store),
        axes_(axes),
        shards_(shards),
        scatter_(scatter),
        buckets_(store.plan().backward_pieces(), FirstPolicy::bucket_bytes / static_cast<Index>(sizeof(FirstReduced))) {
    verify_parameters();
    join_copies();
    if constexpr (rule.level == 1) handles_.reserve(store.sharding().groups().size());
  }

  /// Begins a step.
  void restart() {
    device_.fill(store_.gradients(), G(0.0f));
    if constexpr (in_buckets) buckets_.restart();
  }

  /// `last`: no gradients will be added to this chunk's after this pass.
  void begin(Pass, bool last) { last_ = last; }
  template <class Memory>
  void enter(Index unit, Memory& memory) {
    const Range own = store_.plan().region_of(unit);
    const Tie* const tie = Gather::tie_of(unit);
    if constexpr (rule.shards_gradients()) {
      bucket_ = scatter_.acquire(store_.plan().gathered_size(unit));
      memory.gradients = bucket_.data();
      if (tie != nullptr) memory.tied_gradient = bucket_.data() + own.size();
    } else {
      G* const region = store_.gradients().data();
      memory.gradients = region + own.begin;
      if (tie != nullptr) memory.tied_gradient = region + store_.plan().tied_range(*tie).begin;
    }
  }
  /// The unit's gradients of this pass have been added on this rank.
  void leave(Index unit) {
    const Range own = store_.plan().region_of(unit);
    if constexpr (rule.shards_gradients()) {
      sum_over_tensor(unit, bucket_.first(static_cast<std::size_t>(own.size())));
      const Tie* const tie = Gather::tie_of(unit);
      const std::array<Range, 2> parts{own, tie != nullptr ? store_.plan().tied_range(*tie) : Range{}};
      scatter_.scatter(store_, std::span(parts).first(tie != nullptr ? 2 : 1));
    } else if (last_) {
      sum_over_tensor(unit, region(own));
      if constexpr (rule.level == 1) {
        scatter_in_place(own);
      } else if constexpr (in_buckets) {
        convert<FirstReduced>(own);
        buckets_.complete(static_cast<std::size_t>(store_.plan().units().end - 1 - unit), reduced<FirstReduced>(),
                          axes_.template on<typename FirstPolicy::Axis>());
      }
    }
  }

  /// Every unit is complete. What is kept is then summed over all ranks that share the batch.
  void finish() {
    const Range copies{store_.plan().owned_parameters(), store_.plan().parameter_size()};
    if constexpr (in_buckets) {
      buckets_.finish();
      convert_back<FirstReduced>({0, copies.begin});
    }
    if constexpr (rule.level == 1) {
      scatter_in_place(copies);
      for (auto& handle : handles_) handle.wait();
      handles_.clear();
      for (const ShardGroup& group : store_.sharding().groups()) {
        if constexpr (Shards::has_replicas) shards_.replicas().all_reduce(part_of(reduced<R>(), group.shard)).wait();
        convert_back<R>(group.shard);
      }
    } else if constexpr (rule.level > 1 && Shards::has_replicas) {
      scatter_.sum_replicas(store_);
    }
    axes_.for_batch_axes([&]<class P>(auto& communicator) {
      if constexpr (rule.level == 0) {
        const Range rest = std::is_same_v<P, FirstPolicy> ? copies : Range{0, copies.end};
        using Number = ReductionType<P, G>;
        if (rest.size() == 0) return;
        convert<Number>(rest);
        P::reduce(communicator, part_of(reduced<Number>(), rest)).wait();
        convert_back<Number>(rest);
      } else if constexpr (!std::is_same_v<typename P::Axis, axes::Data>) {
        for_kept([&](std::span<G> kept) { P::reduce(communicator, kept).wait(); });
      }
    });
  }

  /// Sum of squares of what this rank keeps of those elements that it counts; over all ranks, every element of every
  /// whole parameter is counted once.
  [[nodiscard]] double counted_squares() {
    double squares = 0.0;
    for (const LocalParameter& parameter : store_.map())
      for (const Segment& segment : parameter.segments)
        if (segment.counted)
          for_each_range(parameter, segment, [&](Range part) {
            store_.sharding().for_kept(part, [&](Range kept, Index stored) {
              const Index begin = rule.shards_gradients() ? stored : kept.begin;
              squares += ops::sum_of_squares(device_, std::span<const G>(region({begin, begin + kept.size()})));
            });
          });
    return squares;
  }

 private:
  // Blocks that `copies` adjacent tensor ranks hold alike: each has the gradient of its own query heads.
  struct CopyGroup {
    C communicator;
    std::vector<std::pair<Index, Range>> blocks;  ///< unit, range within its region
  };

  template <class Element>
  [[nodiscard]] static std::span<Element> part_of(std::span<Element> whole, Range range) {
    return whole.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
  }
  [[nodiscard]] std::span<G> region(Range range) { return part_of(store_.gradients(), range); }

  // The region of gradients as numbers of type `Number`: itself, or the one beside it that they are converted into.
  template <class Number>
  [[nodiscard]] std::span<Number> reduced() {
    if constexpr (std::is_same_v<Number, G>)
      return store_.gradients();
    else
      return store_.template converted_gradients<Number>();
  }
  template <class Number>
  void convert([[maybe_unused]] Range range) {
    if constexpr (!std::is_same_v<Number, G>) ops::cast(device_, region(range), part_of(reduced<Number>(), range));
  }
  template <class Number>
  void convert_back([[maybe_unused]] Range range) {
    if constexpr (!std::is_same_v<Number, G>) ops::cast(device_, part_of(reduced<Number>(), range), region(range));
  }
  // Calls visit(span) for what this rank keeps: all at once where shards lie side by side.
  template <class Visit>
  void for_kept(Visit&& visit) {
    if constexpr (rule.shards_gradients()) {
      visit(store_.gradients());
    } else {
      for (const ShardGroup& group : store_.sharding().groups()) visit(store_.gradient_shard(group));
    }
  }
  // ZeRO 1: the sums come to lie where the shard's own gradients were.
  void scatter_in_place(Range range) {
    convert<R>(range);
    const Range groups = store_.sharding().groups_of(range);
    for (Index g = groups.begin; g < groups.end; ++g) {
      const ShardGroup& group = store_.sharding().group(g);
      handles_.push_back(shards_.shard().reduce_scatter(std::span<const R>(part_of(reduced<R>(), group.whole)),
                                                        part_of(reduced<R>(), group.shard),
                                                        std::span<const Index>(group.counts)));
    }
  }

  // The unit's gradients lie at `own`.
  void sum_over_tensor(Index unit, std::span<G> own) {
    if constexpr (Lowered::tensor.degree > 1) {
      const Range sums = tensor_sums(unit);
      if (sums.size() > 0) axes_.tensor().all_reduce(part_of(own, sums)).wait();
      for (CopyGroup& group : copies_)
        for (const auto& [owner, range] : group.blocks)
          if (owner == unit) group.communicator.all_reduce(part_of(own, range)).wait();
    }
  }
  [[nodiscard]] static Range tensor_sums(Index unit) {
    Range range{};
    const int element = Lowered::element_of(static_cast<int>(unit));
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      ((static_cast<int>(E) == element ? void(range = Lowered::template UnitOf<static_cast<int>(E)>::tensor_sums)
                                       : void()),
       ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
    return range;
  }

  [[gnu::cold]] void verify_parameters() {
    if constexpr (splits_batch) {
      // The views of `held` look into `shapes`.
      std::vector<std::string> shapes;
      for (const LocalParameter& parameter : store_.map())
        shapes.push_back(concatenate("[", parameter.rows, ", ", parameter.columns, "]"));
      std::vector<comm::NamedShape> held;
      for (std::size_t p = 0; p < shapes.size(); ++p) held.push_back({store_.map()[p].name, shapes[p]});
      axes_.for_batch_axes([&]<class P>(auto& communicator) { comm::verify_agreement(communicator, held); });
    }
  }

  [[gnu::cold]] void join_copies() {
    if constexpr (Lowered::tensor.degree > 1) {
      std::map<int, std::vector<std::pair<Index, Range>>> blocks;
      for (const LocalParameter& parameter : store_.map()) {
        if (!parameter.divided || parameter.tied_copy) continue;
        const Index at = parameter.offset - store_.plan().region_of(parameter.unit).begin;
        for (const Segment& segment : parameter.segments)
          if (segment.copies > 1)
            blocks[segment.copies].push_back(
                {parameter.unit,
                 {at + segment.rows.begin * parameter.columns, at + segment.rows.end * parameter.columns}});
      }
      const int rank = axes_.tensor().rank();
      for (auto& [copies, of_degree] : blocks)
        copies_.push_back({*axes_.tensor().split(rank / copies, rank, "copied heads"), std::move(of_degree)});
    }
  }

  Device& device_;
  Store& store_;
  Axes& axes_;
  Shards& shards_;
  Scatter& scatter_;
  using FirstCommunicator = PolicyCommunicator<FirstPolicy, C>;
  GradientBuckets<FirstPolicy, FirstCommunicator, ReductionHandle<FirstPolicy, FirstCommunicator, FirstReduced>>
      buckets_;
  std::vector<typename PolicyCommunicator<typename S::Data, C>::Handle> handles_{};
  std::vector<CopyGroup> copies_{};
  std::span<G> bucket_{};
  bool last_ = false;
};

}  // namespace dtrain::parallel
