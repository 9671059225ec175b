// The pipeline stages of a model: its units, cut where the balance of cost asks for it.
#pragma once

#include <array>
#include <span>

#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/partition.hpp"
#include "dtrain/parallel/strategy.hpp"

namespace dtrain::parallel {

/// A model has places enough to cut it into `Stages` stages: between units whose values lie in the residual stream.
template <int Pieces, int Stages>
concept StagesFit = Stages <= Pieces;

/// The stages of a model under a strategy, balanced by the FLOPs of their forward passes.
template <class Lowered, class S>
struct Stages {
  static constexpr int count = S::Pipeline::degree;
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

  /// Refuses, in one sentence, more stages than the model can be cut into.
  static consteval bool check() {
    static_assert(StagesFit<pieces, count>,
                  "dtrain: the model has fewer pieces to cut it into than the strategy has pipeline stages");
    return true;
  }

  /// The stage that holds a unit.
  static constexpr int stage_of(Index unit) {
    int stage = 0;
    while (!ranges[static_cast<std::size_t>(stage)].contains(unit)) ++stage;
    return stage;
  }
};

}  // namespace dtrain::parallel
