// One forward, one backward (1F1B): the bubble of GPipe with at most one micro-batch per later stage in flight.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// Warm-up forwards (one per later stage), then one forward and one backward in turn, then the backwards that are left.
/// D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, in the form with
/// flushes of D. Narayanan et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021 (PipeDream-Flush).
struct OneForwardOneBackward {
  static constexpr std::string_view name = "OneForwardOneBackward";

  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches) {
    const int warm_up = std::min(micro_batches, stages - stage - 1);
    std::vector<Compute> items;
    int forward = 0;
    int backward = 0;
    while (forward < warm_up) items.push_back({Work::forward, forward++});
    while (forward < micro_batches) {
      items.push_back({Work::forward, forward++});
      items.push_back({Work::backward, backward++});
    }
    while (backward < micro_batches) items.push_back({Work::backward, backward++});
    return items;
  }

  /// min(m, p - stage): the micro-batches a stage has forwarded before the first gradient comes back.
  static constexpr int in_flight(int stage, int stages, int micro_batches) {
    return std::min(micro_batches, stages - stage);
  }

  /// The idle share of a stage's time when all stages cost the same: (p - 1) / (m + p - 1).
  static constexpr double bubble(int stages, int micro_batches) {
    return static_cast<double>(stages - 1) / (micro_batches + stages - 1);
  }
};

static_assert(OrderedSchedule<OneForwardOneBackward>);

}  // namespace dtrain::schedule
