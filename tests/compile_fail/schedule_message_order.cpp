// expect: dtrain: the schedule receives messages in another order than they are sent
// expect: SameMessageOrder<Shuffled, 2, 2, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"

using namespace dtrain::schedule;

// The last stage takes the micro-batches the other way round; the first sends them in order.
struct Shuffled {
  static constexpr std::string_view name = "Shuffled";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<GPipe>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    if (stage + 1 == stages)
      for (Action& action : table.actions) action.micro_batch = micro_batches - 1 - action.micro_batch;
#endif
    return table;
  }
};

static_assert(RequireSoundSchedule<Shuffled, 2>::value);
