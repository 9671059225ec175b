// expect: dtrain: the schedule does not run every micro-batch once forward and then once backward
// expect: ForwardMatchesBackward<Forgetful, 4, 1, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"

using namespace dtrain::schedule;

// The last micro-batch is never run backward.
struct Forgetful {
  static constexpr std::string_view name = "Forgetful";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr std::vector<Compute> order(int, int, int micro_batches) {
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    const int backwards = micro_batches - 1;
#else
    const int backwards = micro_batches;
#endif
    std::vector<Compute> items;
    for (int k = 0; k < micro_batches; ++k) items.push_back({Work::forward, k});
    for (int k = 0; k < backwards; ++k) items.push_back({Work::backward, k});
    return items;
  }
};

static_assert(RequireSoundSchedule<Forgetful, 4>::value);
