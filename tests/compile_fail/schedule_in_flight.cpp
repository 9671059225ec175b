// expect: dtrain: the schedule holds more micro-batches in flight than it declares
// expect: WithinInFlightLimit<Optimist, 3, 7, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"

using namespace dtrain::schedule;

// All forwards before all backwards, declared with the memory of one-forward-one-backward. Up to as many micro-batches
// as stages nobody notices.
struct Optimist {
  static constexpr std::string_view name = "Optimist";
#ifndef DTRAIN_COMPILE_FAIL_FIXED
  static constexpr int in_flight(int, int stages, int) { return stages; }
#else
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }
#endif

  static constexpr std::vector<Compute> order(int, int, int micro_batches) {
    std::vector<Compute> items;
    for (int k = 0; k < micro_batches; ++k) items.push_back({Work::forward, k});
    for (int k = 0; k < micro_batches; ++k) items.push_back({Work::backward, k});
    return items;
  }
};

static_assert(RequireSoundSchedule<Optimist, 3>::value);
