// What a strategy lowers to, before anything runs: its numbers and its bytes.
#pragma once

#include <unistd.h>

#include "batch.hpp"
#include "registry.hpp"

namespace example {

/// Refuses what would not fit into this machine's memory: the bytes of every rank are known before any is allocated.
template <class Strategy>
void require_memory(const Options& options) {
  const auto needed = static_cast<double>(dt::memory<Model, Strategy>(batch_shape<Strategy>(options)).all_ranks);
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;
  if (there > 0.0 && needed > there)
    throw dt::ConfigurationError(dt::concatenate("dtrain: a batch of ", options.batch, " sequences under ",
                                                 options.strategy, " needs ", needed / gibibyte,
                                                 " GiB on all ranks together, but this machine has ", there / gibibyte,
                                                 " GiB; choose a smaller --batch, or more --micro-batches."));
}

template <class Strategy>
dt::parallel::Explanation explain(const Options& options) {
  return dt::parallel::explanation_of<Model, Strategy>(batch_shape<Strategy>(options));
}

/// Adds a strategy to those that can be explained. In sources of their own, so that what trains compiles in less time.
template <class Strategy>
struct Explained {
  explicit Explained(const char* name) {
    registry()[name].explain = &explain<Strategy>;
    registry()[name].require_memory = &require_memory<Strategy>;
  }
};

}  // namespace example
