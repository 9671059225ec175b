// What a strategy lowers to, before anything runs: its text and its bytes.
#pragma once

#include <unistd.h>

#include <string>

#include "batch.hpp"
#include "registry.hpp"

namespace example {

/// Refuses what would not fit into this machine's memory: the bytes of every rank are known before any is allocated.
template <class Strategy>
void require_memory(const Options& options) {
  const auto program = dt::parallel::explanation_of<Model, Strategy>(batch_shape<Strategy>(options));
  double needed = 0.0;
  for (const auto& stage : program.stages) needed += static_cast<double>(stage.total_bytes());
  needed *= static_cast<double>(program.ranks) / static_cast<double>(program.stages.size());
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;
  if (there > 0.0 && needed > there)
    throw dt::ConfigurationError(dt::concatenate("dtrain: a batch of ", options.batch, " sequences under ",
                                                 options.strategy, " needs ", needed / gibibyte,
                                                 " GiB on all ranks together, but this machine has ", there / gibibyte,
                                                 " GiB; choose a smaller --batch, or more --micro-batches."));
}

template <class Strategy>
std::string explain(const Options& options) {
  return dt::explain<Model, Strategy>(batch_shape<Strategy>(options));
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
