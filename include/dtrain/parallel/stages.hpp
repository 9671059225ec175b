// The pipeline stages of a model: its units, cut where the balance of cost asks for it.
#pragma once

#include <array>
#include <span>

#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/partition.hpp"
#include "dtrain/parallel/rank_plan.hpp"
#include "dtrain/parallel/strategy.hpp"

namespace dtrain::parallel {

namespace detail {
// How the units of a model run under a strategy.
template <class S>
struct UnitOptionsOf {
  using Pipeline = typename S::Pipeline;
  static constexpr UnitOptions value{
      .recomputes_attention = S::recomputation.attention,
      .recomputes_norms = S::recomputation.norms,
      .recomputes_activations = S::recomputation.activations,
      .splits_backward =
          schedule::splits_backward_pass<typename Pipeline::Schedule, Pipeline::degree, Pipeline::chunks>,
      .loss_rows = S::loss_rows};
};
}  // namespace detail

/// `Model` lowered for a strategy, in element type `T`.
template <class Model, class S, class T>
using LoweredFor = LoweredModel<Model, typename S::Tensor, T, detail::UnitOptionsOf<S>>;

/// A schedule that splits the backward pass reads the activations twice, so that recomputation would run twice too.
template <class Schedule, bool Recomputes, bool Splits>
concept RecomputesOnce = !(Recomputes && Splits);

/// No two layers read the same tied parameter where a pipeline may part them.
template <bool Unique, int Stages>
concept OneUserPerTie = Unique || Stages == 1;

/// A model has places enough to cut it into `Stages` stages: between units whose values lie in the residual stream.
template <int Pieces, int Stages>
concept StagesFit = Stages <= Pieces;

/// The stages of a model under a strategy, balanced by the FLOPs of their forward passes.
template <class Lowered, class S>
struct Stages {
  static constexpr int count = S::Pipeline::virtual_stages;
  /// The context that costs are weighed at: the longest the model takes.
  static constexpr Index context = Lowered::max_context > 0 ? Lowered::max_context : 1024;
  static constexpr int pieces = [] {
    int total = 1;
    for (int u = 0; u + 1 < Lowered::units; ++u)
      total += Lowered::table[static_cast<std::size_t>(Lowered::element_of(u))].cuttable ? 1 : 0;
    return total;
  }();

  static constexpr std::array<Range, static_cast<std::size_t>(count)> ranges = [] {
    std::array<double, static_cast<std::size_t>(Lowered::units)> costs{};
    std::array<bool, static_cast<std::size_t>(Lowered::units)> cuttable{};
    const auto flops = Lowered::flops_per_row(context);
    for (int u = 0; u < Lowered::units; ++u) {
      const auto element = static_cast<std::size_t>(Lowered::element_of(u));
      costs[static_cast<std::size_t>(u)] = flops[element];
      cuttable[static_cast<std::size_t>(u)] = Lowered::table[element].cuttable;
    }
    std::array<Range, static_cast<std::size_t>(count)> result{};
    const Partition found = partition(std::span<const double>(costs), std::span<const bool>(cuttable), count);
    if (found.found())
      for (std::size_t s = 0; s < result.size(); ++s) result[s] = found.ranges[s];
    return result;
  }();

  static constexpr bool ties_are_unique = [] {
    for (const Tie& tie : Lowered::ties)
      for (const Tie& other : Lowered::ties)
        if (tie.user != other.user && tie.owner == other.owner && tie.offset == other.offset) return false;
    return true;
  }();

  /// Refuses, in one sentence each, what cannot be cut or run in stages.
  static consteval bool check() {
    static_assert(StagesFit<pieces, count>,
                  "dtrain: the model has fewer pieces to cut it into than the strategy has pipeline stages");
    static_assert(OneUserPerTie<ties_are_unique, count>,
                  "dtrain: two layers use the storage of one parameter, which a pipeline does not support");
    static_assert(
        RecomputesOnce<typename S::Pipeline::Schedule, S::recomputation.any(), Lowered::unit_options.splits_backward>,
        "dtrain: the schedule splits the backward pass, which then would recompute everything twice; leave "
        "Recompute out, or choose a schedule with whole backward passes");
    if constexpr (Lowered::unit_options.loss_rows > 0) check_loss_unit<Lowered>();
    return true;
  }

  /// The stage that holds a unit.
  static constexpr int stage_of(Index unit) {
    int stage = 0;
    while (!ranges[static_cast<std::size_t>(stage)].contains(unit)) ++stage;
    return stage;
  }
};

/// The memory plan of a rank of pipeline stage `stage`, number `shard_rank` of `shard_ranks` that share out parameters.
template <class Lowered, class S, NumberFormat Format>
constexpr RankPlan<Lowered, Format> plan_of_rank(int stage, int shard_ranks, int shard_rank) {
  std::array<Range, static_cast<std::size_t>(S::Pipeline::chunks)> ranges{};
  for (int c = 0; c < S::Pipeline::chunks; ++c)
    ranges[static_cast<std::size_t>(c)] =
        Stages<Lowered, S>::ranges[static_cast<std::size_t>(S::Pipeline::pipeline.virtual_stage({stage, c}))];
  using G = typename PrecisionOf<Format>::Gradient;
  using Reduced = ReductionType<typename S::Data, G>;
  return RankPlan<Lowered, Format>(std::span<const Range>(ranges), S::recomputation, S::sharding, shard_ranks,
                                   shard_rank, std::is_same_v<Reduced, G> ? 0 : Index{sizeof(Reduced)});
}

}  // namespace dtrain::parallel
