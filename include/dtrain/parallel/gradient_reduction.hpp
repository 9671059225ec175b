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
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/stage.hpp"
#include "dtrain/parallel/stages.hpp"

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

/// Owns the order of reductions: within a unit over the tensor axis, then its bucket over the first axis that splits
/// the batch, and at the end over the other such axes and over the stages that hold copies of tied parameters.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class GradientReduction {
  using G = typename PrecisionOf<Format>::Gradient;
  using StageType = Stage<Lowered, Format, Device, S::Pipeline::degree == 1>;
  using Axes = AxisCommunicators<S, C>;
  static constexpr bool splits_batch = S::Batch::size > 0;
  using FirstPolicy = typename detail::FirstPolicy<typename S::Batch>::type;
  static_assert(!splits_batch || ReducesGradients<FirstPolicy, C>,
                "dtrain: the policy of an axis that splits the batch lacks reduce(communicator, gradients) or "
                "bucket_bytes");

 public:
  /// Collective over the world. Throws ConfigurationError when ranks along an axis that splits the batch hold different
  /// parameters.
  GradientReduction(StageType& stage, Axes& axes)
      : stage_(stage),
        axes_(axes),
        buckets_(stage.plan().backward_pieces(), FirstPolicy::bucket_bytes / static_cast<Index>(sizeof(G))) {
    verify_parameters();
    join_ties();
    join_copies();
  }

  void restart() {
    if constexpr (splits_batch) buckets_.restart();
  }

  /// All gradients of a unit have been added on this rank.
  void complete(Index unit) {
    sum_over_tensor(unit);
    if constexpr (splits_batch)
      buckets_.complete(static_cast<std::size_t>(stage_.plan().units().end - 1 - unit), stage_.gradients(),
                        axes_.template on<typename FirstPolicy::Axis>());
  }

  /// Every unit is complete.
  void finish() {
    const auto copies = region({stage_.plan().owned_parameters(), stage_.plan().parameter_size()});
    if constexpr (splits_batch) {
      buckets_.finish();
      axes_.for_batch_axes([&]<class P>(auto& communicator) {
        const auto rest = std::is_same_v<P, FirstPolicy> ? copies : stage_.gradients();
        if (!rest.empty()) P::reduce(communicator, rest).wait();
      });
    }
    for (TieGroup& tie : ties_) tie.communicator.all_reduce(region(tie.range)).wait();
  }

  /// Sum of squares of every whole parameter's elements, each counted by one rank; then the root.
  [[nodiscard]] double norm() {
    std::array<double, 1> squares{0.0};
    for (const LocalParameter& parameter : stage_.map())
      for (const Segment& segment : parameter.segments)
        if (segment.counted) squares[0] += segment_squares(parameter, segment);
    if constexpr (Lowered::tensor.degree > 1) axes_.tensor().all_reduce(std::span(squares)).wait();
    if constexpr (S::Pipeline::degree > 1) axes_.pipeline().all_reduce(std::span(squares)).wait();
    return std::sqrt(squares[0]);
  }

 private:
  struct TieGroup {
    C communicator;
    Range range;
  };
  // Blocks that `copies` adjacent tensor ranks hold alike: each has the gradient of its own query heads.
  struct CopyGroup {
    C communicator;
    std::vector<std::pair<Index, Range>> blocks;  ///< unit, range of the region
  };

  [[nodiscard]] std::span<G> region(Range range) {
    return stage_.gradients().subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
  }

  [[nodiscard]] double segment_squares(const LocalParameter& parameter, const Segment& segment) {
    double squares = 0.0;
    const auto gradients = stage_.gradients();
    const auto rows_of = [&](Index begin, Index count) {
      return std::span<const G>(gradients.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
    };
    if (segment.columns.size() == parameter.columns)
      return ops::sum_of_squares(stage_.device(), rows_of(parameter.offset + segment.rows.begin * parameter.columns,
                                                          segment.rows.size() * parameter.columns));
    for (Index r = segment.rows.begin; r < segment.rows.end; ++r)
      squares += ops::sum_of_squares(
          stage_.device(),
          rows_of(parameter.offset + r * parameter.columns + segment.columns.begin, segment.columns.size()));
    return squares;
  }

  void sum_over_tensor(Index unit) {
    if constexpr (Lowered::tensor.degree > 1) {
      const auto sums = tensor_sums(unit);
      const Index at = stage_.plan().placement(unit).parameters;
      if (sums.size() > 0) axes_.tensor().all_reduce(region({at + sums.begin, at + sums.end})).wait();
      for (CopyGroup& group : copies_)
        for (const auto& [owner, range] : group.blocks)
          if (owner == unit) group.communicator.all_reduce(region(range)).wait();
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
      for (const LocalParameter& parameter : stage_.map())
        shapes.push_back(concatenate("[", parameter.rows, ", ", parameter.columns, "]"));
      std::vector<comm::NamedShape> held;
      for (std::size_t p = 0; p < shapes.size(); ++p) held.push_back({stage_.map()[p].name, shapes[p]});
      axes_.for_batch_axes([&]<class P>(auto& communicator) { comm::verify_agreement(communicator, held); });
    }
  }

  // The two stages of a tie, at the same place along the other axes.
  [[gnu::cold]] void join_ties() {
    if constexpr (S::Pipeline::degree > 1) {
      const auto& mesh = axes_.mesh();
      for (const Tie& tie : Lowered::ties) {
        using Cuts = Stages<Lowered, S>;
        if (Cuts::stage_of(unit_of(tie.user)) == Cuts::stage_of(unit_of(tie.owner))) continue;
        const auto& plan = stage_.plan();
        const bool member = plan.holds_element(tie.user) || plan.holds_element(tie.owner);
        auto group = axes_.world().split(member ? mesh.template group<axes::Pipeline>() : -1,
                                         mesh.template along<axes::Pipeline>().rank, "tied parameters");
        if (!group) continue;
        const Index offset = plan.holds_element(tie.owner) ? plan.placement(unit_of(tie.owner)).parameters + tie.offset
                                                           : plan.tied_offset(tie);
        ties_.push_back({*group, {offset, offset + tie.size}});
      }
    }
  }
  static Index unit_of(int element) { return Lowered::table[static_cast<std::size_t>(element)].first_unit; }

  [[gnu::cold]] void join_copies() {
    if constexpr (Lowered::tensor.degree > 1) {
      std::map<int, std::vector<std::pair<Index, Range>>> blocks;
      for (const LocalParameter& parameter : stage_.map())
        for (const Segment& segment : parameter.segments)
          if (parameter.divided && segment.copies > 1)
            blocks[segment.copies].push_back({parameter.unit,
                                              {parameter.offset + segment.rows.begin * parameter.columns,
                                               parameter.offset + segment.rows.end * parameter.columns}});
      const int rank = axes_.tensor().rank();
      for (auto& [copies, of_degree] : blocks)
        copies_.push_back({*axes_.tensor().split(rank / copies, rank, "copied heads"), std::move(of_degree)});
    }
  }

  StageType& stage_;
  Axes& axes_;
  using FirstCommunicator = PolicyCommunicator<FirstPolicy, C>;
  GradientBuckets<FirstPolicy, FirstCommunicator, ReductionHandle<FirstPolicy, FirstCommunicator, G>> buckets_;
  std::vector<TieGroup> ties_{};
  std::vector<CopyGroup> copies_{};
};

}  // namespace dtrain::parallel
