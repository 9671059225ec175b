// GPipe: all micro-batches forward, then all backward.
#pragma once

#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// All micro-batches forward, then all backward in the same order. Simple, and holds every micro-batch at once.
/// Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019.
struct GPipe {
  static constexpr std::string_view name = "GPipe";

  static constexpr std::vector<Compute> order(int /*stage*/, int /*stages*/, int micro_batches) {
    std::vector<Compute> items;
    for (int k = 0; k < micro_batches; ++k) items.push_back({Work::forward, k});
    for (int k = 0; k < micro_batches; ++k) items.push_back({Work::backward, k});
    return items;
  }

  /// Every micro-batch is in flight when the first backward begins.
  static constexpr int in_flight(int /*stage*/, int /*stages*/, int micro_batches) { return micro_batches; }

  /// The idle share of a stage's time when all stages cost the same: (p - 1) / (m + p - 1).
  static constexpr double bubble(int stages, int micro_batches) {
    return static_cast<double>(stages - 1) / (micro_batches + stages - 1);
  }
};

static_assert(OrderedSchedule<GPipe>);

}  // namespace dtrain::schedule
