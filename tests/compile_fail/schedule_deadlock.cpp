// expect: dtrain: the schedule deadlocks when a send waits for its receive
// expect: FreeOfDeadlock<Plain, 2, 2, 1>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"

using namespace dtrain::schedule;

// Stage 0 sends micro-batch 1 forward before it receives the gradient of micro-batch 0; stage 1 sends that gradient
// before it receives micro-batch 1. Each waits for the other to receive, unless both exchange at once.
struct Plain {
  static constexpr std::string_view name = "Plain";
  static constexpr int in_flight(int stage, int stages, int) { return stages - stage; }

  static constexpr Table plan(int stage, int, int) {
#ifndef DTRAIN_COMPILE_FAIL_FIXED
    constexpr bool at_once = false;
#else
    constexpr bool at_once = true;
#endif
    Table table;
    if (stage == 0)
      table.actions = {{ActionKind::forward, 0},          {ActionKind::send_forward, 0},
                       {ActionKind::forward, 1},          {ActionKind::send_forward, 1, 0, at_once},
                       {ActionKind::receive_backward, 0}, {ActionKind::backward, 0},
                       {ActionKind::receive_backward, 1}, {ActionKind::backward, 1}};
    else
      table.actions = {{ActionKind::receive_forward, 0}, {ActionKind::forward, 0},
                       {ActionKind::backward, 0},        {ActionKind::send_backward, 0, 0, at_once},
                       {ActionKind::receive_forward, 1}, {ActionKind::forward, 1},
                       {ActionKind::backward, 1},        {ActionKind::send_backward, 1}};
    assign_slots(table);
    return table;
  }
};

static_assert(RequireSound<Plain, 2, 2>::value);
