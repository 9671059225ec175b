// expect: dtrain: the schedule computes or sends a micro-batch before its data is there
// expect: ArrivesBeforeUse<Hasty, 2, 1, 1>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"

using namespace dtrain::schedule;

// The last stage computes before it receives.
struct Hasty {
  static constexpr std::string_view name = "Hasty";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<GPipe>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    if (stage + 1 == stages) std::swap(table.actions[0], table.actions[1]);
#endif
    return table;
  }
};

static_assert(RequireSoundSchedule<Hasty, 2>::value);
