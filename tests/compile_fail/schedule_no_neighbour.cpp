// expect: dtrain: the schedule has a row that names a micro-batch, chunk, slot or neighbour that does not exist
// expect: WellFormed<Ring, 3, 1, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"

using namespace dtrain::schedule;

// The last stage sends its output on, as in a ring; a pipeline has an end.
struct Ring {
  static constexpr std::string_view name = "Ring";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<GPipe>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    table.actions.push_back({ActionKind::send_forward, micro_batches - 1, 0});
#endif
    return table;
  }
};

static_assert(RequireSoundSchedule<Ring, 3>::value);
