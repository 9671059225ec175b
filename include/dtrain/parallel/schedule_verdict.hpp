// What the judge of schedules can find, and where.
#pragma once

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// What is wrong with a set of tables. Checked in this order; the first that fails is reported.
enum class Failure : unsigned char {
  none,
  malformed,                  // a row that means nothing: no such micro-batch, slot or neighbour, a group with a hole
  forward_backward_mismatch,  // a micro-batch not exactly once forward and then once backward on a chunk
  unmatched_message,          // a send without its receive or reverse, a message sent twice, a value not handed on
  message_order,              // two stages exchange the same messages in different orders
  use_before_arrival,         // a computation before its input came, or a send before there is something to send
  in_flight_above_limit,      // more micro-batches alive than the schedule declares
  slot_overwritten,           // two living micro-batches in one slot, or one micro-batch in two
  deadlock                    // stages wait for each other when a send waits for its receive
};

/// The judge's finding: `failure`, and where. Which of the fields hold something depends on the failure.
struct Verdict {
  Failure failure = Failure::none;
  VirtualPipeline pipeline{};
  int micro_batches = 0;
  int stage = 0;
  int chunk = 0;
  int micro_batch = 0;
  ActionKind action = ActionKind::forward;
  /// Row of the stage's table.
  int row = 0;
  /// The stage it should agree with, and what that one does instead.
  int other_stage = 0;
  int other_chunk = 0;
  int other_micro_batch = 0;
  ActionKind other_action = ActionKind::forward;
  /// How many there are, and how many there should be (times, slots).
  int count = 0;
  int limit = 0;

  [[nodiscard]] constexpr bool ok() const { return failure == Failure::none; }
};

}  // namespace dtrain::schedule
