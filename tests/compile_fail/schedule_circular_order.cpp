// expect: dtrain: the schedule deadlocks when a send waits for its receive
// expect: FreeOfDeadlock<Circle, 3, 2, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"

using namespace dtrain::schedule;

// The first stage wants the gradient of each micro-batch before it takes the next; the others want all micro-batches
// first. With one micro-batch that works, with two every stage waits.
struct Circle {
  static constexpr std::string_view name = "Circle";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr std::vector<Compute> order(int stage, int, int micro_batches) {
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    const bool in_turn = stage == 0;
#else
    const bool in_turn = stage < 0;
#endif
    std::vector<Compute> items;
    for (int k = 0; k < micro_batches; ++k) {
      items.push_back({Work::forward, k});
      if (in_turn) items.push_back({Work::backward, k});
    }
    for (int k = 0; k < micro_batches && !in_turn; ++k) items.push_back({Work::backward, k});
    return items;
  }
};

static_assert(RequireSoundSchedule<Circle, 3>::value);
