// expect: dtrain: the schedule has a send without its receive, or a receive without its send
// expect: EverySendReceived<Lossy, 2, 3, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"

using namespace dtrain::schedule;

// The first stage drops its last send; the second still waits for it.
struct Lossy {
  static constexpr std::string_view name = "Lossy";
  static constexpr int in_flight(int, int, int micro_batches) { return micro_batches; }

  static constexpr Table plan(int stage, int stages, int micro_batches) {
    Table table = tables_of<GPipe>(stages, micro_batches)[static_cast<std::size_t>(stage)];
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    for (std::size_t row = 0; row < table.actions.size(); ++row)
      if (table.actions[row].kind == ActionKind::send_forward && table.actions[row].micro_batch == 2)
        table.actions.erase(table.actions.begin() + static_cast<std::ptrdiff_t>(row));
#endif
    return table;
  }
};

static_assert(RequireSound<Lossy, 2, 3>::value);
