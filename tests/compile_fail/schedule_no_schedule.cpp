// expect: dtrain: a schedule is a type with static constexpr members name, in_flight(stage, stages, micro_batches) and
// either order(...) or plan(...) expect: Schedule<Unbounded>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"

using namespace dtrain::schedule;

// Says in which order to compute, but not how many micro-batches it keeps in flight.
struct Unbounded {
  static constexpr std::string_view name = "Unbounded";
#ifdef DTRAIN_COMPILE_FAIL_FIXED
  static constexpr int in_flight(int, int, int) { return 1; }
#endif

  static constexpr std::vector<Compute> order(int, int, int micro_batches) {
    std::vector<Compute> items;
    for (int k = 0; k < micro_batches; ++k) {
      items.push_back({Work::forward, k});
      items.push_back({Work::backward, k});
    }
    return items;
  }
};

static_assert(RequireSoundSchedule<Unbounded, 2>::value);
