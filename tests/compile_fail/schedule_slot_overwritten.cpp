// expect: dtrain: the schedule overwrites the slot of a micro-batch that still needs it
// expect: SlotsKept<Cramped, 4, 2, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"

using namespace dtrain::schedule;

// All micro-batches in one slot, while all are in flight.
struct Cramped {
  static constexpr std::string_view name = "Cramped";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<GPipe>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    for (Action& action : table.actions) action.slot = 0;
#endif
    return table;
  }
};

static_assert(RequireSoundSchedule<Cramped, 4>::value);
