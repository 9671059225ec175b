// The tables of evaluation: every micro-batch forward, nothing backward.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_derivation.hpp"

namespace dtrain::schedule {

/// The tables of all stages for a pass without gradients. A slot is free again once its output has been sent, so every
/// stage needs one slot.
constexpr std::vector<Table> forward_only_tables(int stages, int micro_batches) {
  std::vector<Compute> order;
  for (int k = 0; k < micro_batches; ++k) order.push_back({Work::forward, k});
  return derive_communication(std::vector(static_cast<std::size_t>(stages), order), micro_batches);
}

/// The table of one stage for a pass without gradients.
constexpr Table forward_only(int stage, int stages, int micro_batches) {
  return forward_only_tables(stages, micro_batches)[static_cast<std::size_t>(stage)];
}

}  // namespace dtrain::schedule
