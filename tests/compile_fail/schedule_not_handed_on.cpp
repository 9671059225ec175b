// expect: dtrain: the schedule has a send without its receive, or a receive without its send
// expect: EverySendReceived<Torn, 3, 1, 2>
#include <cstddef>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"

using namespace dtrain::schedule;

// The last stage forgets to hand the first chunk's output to the second, where the V turns.
struct Torn {
  static constexpr std::string_view name = "Torn";
  static constexpr int chunks = 2;
  static constexpr Placement placement = Placement::v_shaped;
  static constexpr int in_flight(int, int, int micro_batches) { return 2 * micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<ZeroBubbleV>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    for (std::size_t row = 0; row < table.actions.size(); ++row)
      if (table.actions[row].kind == ActionKind::hand_forward)
        table.actions.erase(table.actions.begin() + static_cast<std::ptrdiff_t>(row));
#endif
    return table;
  }
};

static_assert(RequireSoundSchedule<Torn, 3>::value);
