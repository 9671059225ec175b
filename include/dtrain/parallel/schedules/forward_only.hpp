// The tables of evaluation: every micro-batch forward, nothing backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_derivation.hpp"

namespace dtrain::schedule {

/// In which order a stage runs forwards alone. Looped: rounds of as many micro-batches as there are stages, each
/// through all chunks. V-shaped: in the order in which they come by when the first stage begins one every other time
/// unit.
constexpr std::vector<Compute> forward_only_order(const VirtualPipeline& pipeline, int stage, int micro_batches) {
  std::vector<Compute> order;
  if (pipeline.placement == Placement::v_shaped) {
    const int turn = pipeline.stages - 1 - stage;  // how many stages lie between the two visits of a micro-batch
    for (int k = 0; k < micro_batches + turn; ++k) {
      if (k < micro_batches) order.push_back({Work::forward, k, 0});
      if (k >= turn) order.push_back({Work::forward, k - turn, 1});
    }
    return order;
  }
  for (int begin = 0; begin < micro_batches; begin += pipeline.stages)
    for (int chunk = 0; chunk < pipeline.chunks; ++chunk)
      for (int k = begin; k < std::min(begin + pipeline.stages, micro_batches); ++k)
        order.push_back({Work::forward, k, chunk});
  return order;
}

/// The tables of all stages for a pass without gradients. A slot is free again once its output has been sent, so every
/// chunk needs one slot.
constexpr std::vector<Table> forward_only_tables(int stages, int micro_batches, int chunks = 1,
                                                 Placement placement = Placement::looped) {
  std::vector<std::vector<Compute>> orders;
  for (int stage = 0; stage < stages; ++stage)
    orders.push_back(forward_only_order({stages, chunks, placement}, stage, micro_batches));
  return derive_communication(orders, micro_batches, chunks, placement);
}

/// The table of one stage for a pass without gradients.
constexpr Table forward_only(int stage, int stages, int micro_batches, int chunks = 1,
                             Placement placement = Placement::looped) {
  return forward_only_tables(stages, micro_batches, chunks, placement)[static_cast<std::size_t>(stage)];
}

}  // namespace dtrain::schedule
