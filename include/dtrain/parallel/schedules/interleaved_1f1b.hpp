// Interleaved 1F1B: several chunks per stage, so that the pipeline fills and drains in smaller steps.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// One forward, one backward over v chunks per stage, dealt out in loops. Micro-batches pass in rounds: a round goes
/// through one chunk after the other. D. Narayanan et al., "Efficient large-scale language model training on GPU
/// clusters using Megatron-LM", SC 2021, section 2.2.
///
/// The paper takes rounds of p micro-batches, and only numbers of micro-batches that p divides. Here there are as many
/// rounds of at least p as m allows, the first ones one longer where they do not divide. A round that is shorter than
/// the pipeline would leave stages waiting, so the bubble is the paper's for every m >= p; the price is that a few more
/// micro-batches are in flight.
struct Interleaved1F1B {
  static constexpr std::string_view name = "Interleaved1F1B";

  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches, int chunks) {
    const int total = micro_batches * chunks;
    const int warm_up = std::min(total, ahead(stage, stages, micro_batches, chunks));
    std::vector<Compute> items;
    Line forward{Work::forward, stages, micro_batches, chunks};
    Line backward{Work::backward, stages, micro_batches, chunks};
    for (int i = 0; i < warm_up; ++i) items.push_back(forward.next());
    for (int i = warm_up; i < total; ++i) {
      items.push_back(forward.next());
      items.push_back(backward.next());
    }
    for (int i = total - warm_up; i < total; ++i) items.push_back(backward.next());
    return items;
  }

  /// min(m v, 2 (p - stage - 1) + (v - 1) r + 1) over all chunks, where r is the longest round: p if p divides m.
  static constexpr int in_flight(int stage, int stages, int micro_batches, int chunks) {
    return std::min(micro_batches * chunks, ahead(stage, stages, micro_batches, chunks) + 1);
  }

  /// The idle share of a stage's time when forward and backward cost the same on all chunks: (p - 1) / (v m + p - 1).
  /// With m < p micro-batches the last stage also waits p - m times for each further chunk.
  static constexpr double bubble(int stages, int micro_batches, int chunks) {
    const int idle = stages - 1 + (chunks - 1) * std::max(0, stages - micro_batches);
    return static_cast<double>(idle) / (chunks * micro_batches + idle);
  }

 private:
  static constexpr int rounds(int stages, int micro_batches) { return std::max(1, micro_batches / stages); }

  // The forwards of a stage before its first backward, or its first pair.
  static constexpr int ahead(int stage, int stages, int micro_batches, int chunks) {
    const int count = rounds(stages, micro_batches);
    const int longest = (micro_batches + count - 1) / count;
    return 2 * (stages - stage - 1) + (chunks - 1) * longest;
  }

  // Goes through one pass's items: rounds, of each all chunks, of each all its micro-batches.
  struct Line {
    Work work;
    int stages;
    int micro_batches;
    int chunks;
    int begin = 0;  // of the round
    int round = 0;
    int chunk = 0;
    int along = 0;

    constexpr Compute next() {
      const Compute item{work, begin + along, work == Work::forward ? chunk : chunks - 1 - chunk};
      const int count = rounds(stages, micro_batches);
      const int size = micro_batches / count + (round < micro_batches % count ? 1 : 0);
      if (++along == size) {
        along = 0;
        if (++chunk == chunks) {
          chunk = 0;
          begin += size;
          ++round;
        }
      }
      return item;
    }
  };
};

static_assert(OrderedSchedule<Interleaved1F1B> && TakesChunks<Interleaved1F1B>);

}  // namespace dtrain::schedule
