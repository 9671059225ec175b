// ZB-H1: 1F1B with the backward pass in two parts, a third of its bubble in the memory of its first stage.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// The order of 1F1B, in which gradients of inputs, for which the previous stage waits, come first, and gradients of
/// weights, for which nobody waits, fill the time in which a stage would wait. Stage s keeps s of them back, so that
/// every stage has as many micro-batches in flight as the first stage of 1F1B.
/// P. Qi et al., "Zero bubble pipeline parallelism", 2023 (ICLR 2024), section 2.1.
struct ZeroBubbleH1 {
  static constexpr std::string_view name = "ZeroBubbleH1";

  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches) {
    std::vector<Compute> items;
    int forward = 0;
    int weight = 0;
    for (; forward < std::min(micro_batches, stages - stage - 1); ++forward) items.push_back({Work::forward, forward});
    for (int input = 0; input < micro_batches; ++input) {
      const bool steady = forward < micro_batches;
      if (steady) items.push_back({Work::forward, forward++});
      items.push_back({Work::backward_input, input});
      // What is kept back is run only when no more forwards are left; until then one part follows the other.
      if (!steady || input - weight >= stage) items.push_back({Work::backward_weight, weight++});
    }
    while (weight < micro_batches) items.push_back({Work::backward_weight, weight++});
    return items;
  }

  /// min(m, p) on every stage, from the forward to the gradients of the weights.
  static constexpr int in_flight(int /*stage*/, int stages, int micro_batches) {
    return std::min(micro_batches, stages);
  }

  /// The idle share of a stage's time when the forward and both parts of the backward cost the same: (p - 1) / (3 m + p
  /// - 1), of the idle time (p - 1) (F + B - W) of the paper. With m < p - 1 there are not enough weight gradients to
  /// fill all of the rest.
  static constexpr double bubble(int stages, int micro_batches) {
    const int idle = std::max(stages - 1, 2 * stages - 1 - micro_batches);
    return stages == 1 ? 0.0 : static_cast<double>(idle) / (3 * micro_batches + idle);
  }
};

static_assert(OrderedSchedule<ZeroBubbleH1>);

}  // namespace dtrain::schedule
