// ZB-V: two chunks per stage in a V and the backward pass in two parts, so that a stage that has begun never waits.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// The first stage also holds the last chunk, and so gets the first gradients as soon as they exist. When forward,
/// gradient of the input and gradient of the weights cost the same, every stage works without a pause from its first
/// computation to its last, in the memory of 1F1B's first stage.
/// P. Qi et al., "Pipeline parallelism with controllable memory", 2024, section 3 (V-ZB) and appendix.
struct ZeroBubbleV {
  static constexpr std::string_view name = "ZeroBubbleV";
  static constexpr int chunks = 2;
  static constexpr Placement placement = Placement::v_shaped;

  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches) {
    // The pattern needs 2 p - 1 micro-batches to come to its steady part; with fewer, those that do not exist drop out.
    Pattern pattern{std::max(micro_batches, 2 * stages - 1), micro_batches, {}};
    const int after = stages - stage;  // stages from this one to the last
    // Fill the way there, until the first micro-batch is back; then as much as the memory takes.
    for (int i = 0; i < 2 * after - 1; ++i) pattern.forward(0);
    for (int i = 0; i < stage; ++i) {
      pattern.forward(1);
      pattern.forward(0);
    }
    for (int i = 0; i < after; ++i) pattern.there_and_back();
    // Steady: six computations in turn, one of each kind.
    while (pattern.forwards[1] < pattern.count) {
      pattern.forward(0);
      pattern.input(0);
      pattern.weight(0);
      pattern.there_and_back();
    }
    // Drain: gradients that another stage waits for come first, and weights fill the gaps.
    for (int i = 0; i < stage; ++i) {
      pattern.input(0);
      pattern.input(1);
    }
    while (pattern.inputs[0] < pattern.count) {
      pattern.input(0);
      pattern.weight(0);
    }
    while (pattern.weights[1] < pattern.count) pattern.weight(1);
    while (pattern.weights[0] < pattern.count) pattern.weight(0);
    return std::move(pattern.items);
  }

  /// At most min(2 m, 2 p) halves of a stage, and as many from m = 2 p - 1 on, from the forward to the gradients of the
  /// weights.
  static constexpr int in_flight(int /*stage*/, int stages, int micro_batches) {
    return 2 * std::min(micro_batches, stages);
  }

  /// The idle share of a stage's time when the forward and both parts of the backward cost the same on all chunks:
  /// (p - 1) / (6 m + p - 1), all of it before a stage's first computation or after its last. With less than about
  /// 3 p / 2 micro-batches stages also wait in between.
  static constexpr double bubble(int stages, int micro_batches) {
    const int idle = std::max(stages - 1, 4 * (stages - 1) - 2 * (micro_batches - 1));
    return static_cast<double>(idle) / (6 * micro_batches + idle);
  }

 private:
  // Counts each kind of computation up on each chunk, and writes those of micro-batches that exist.
  struct Pattern {
    int count;
    int micro_batches;
    std::vector<Compute> items;
    int forwards[2] = {0, 0};
    int inputs[2] = {0, 0};
    int weights[2] = {0, 0};

    constexpr void forward(int chunk) { add(Work::forward, forwards[chunk], chunk); }
    constexpr void input(int chunk) { add(Work::backward_input, inputs[chunk], chunk); }
    constexpr void weight(int chunk) { add(Work::backward_weight, weights[chunk], chunk); }
    // The second chunk of a micro-batch on the way there, and both parts of another's on the way back.
    constexpr void there_and_back() {
      forward(1);
      input(1);
      weight(1);
    }
    constexpr void add(Work work, int& next, int chunk) {
      if (next < micro_batches) items.push_back({work, next, chunk});
      if (next < count) ++next;
    }
  };
};

static_assert(OrderedSchedule<ZeroBubbleV>);

}  // namespace dtrain::schedule
