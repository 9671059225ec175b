// Schedules in words and pictures: the sentence of a verdict, and a timeline of tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_verdict.hpp"

namespace dtrain::schedule {

/// The name of an action, as sentences use it.
constexpr std::string_view action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::send_forward:
      return "send forward";
    case ActionKind::receive_forward:
      return "receive forward";
    case ActionKind::send_backward:
      return "send backward";
    case ActionKind::receive_backward:
      return "receive backward";
  }
  return "unknown action";
}

namespace detail {

inline std::string what_is_done(ActionKind kind, int micro_batch, int stage) {
  const std::string name = concatenate(action_name(kind), " of micro-batch ", micro_batch);
  if (is_send(kind)) return concatenate(name, " to stage ", partner_of(kind, stage));
  if (is_receive(kind)) return concatenate(name, " from stage ", partner_of(kind, stage));
  return name;
}

inline std::string times(int count) {
  if (count == 0) return "never";
  return count == 1 ? "once" : concatenate(count, " times");
}

[[gnu::cold]] inline std::string finding(const Verdict& v) {
  const std::string does = what_is_done(v.action, v.micro_batch, v.stage);
  switch (v.failure) {
    case Failure::none:
      return "is sound";
    case Failure::malformed:
      return concatenate("has a row that means nothing: row ", v.row, " of stage ", v.stage, " (", does,
                         ") names a micro-batch, slot or neighbour that does not exist, or groups a computation");
    case Failure::forward_backward_mismatch:
      if (v.count == v.limit)
        return concatenate("mismatches forward and backward: stage ", v.stage, " runs the ", does, " in row ", v.row,
                           ", before its forward");
      return concatenate("mismatches forward and backward: stage ", v.stage, " runs the ", action_name(v.action),
                         " of micro-batch ", v.micro_batch, " ", times(v.count), " instead of ", times(v.limit));
    case Failure::unmatched_message:
      if (v.count < v.limit)
        return concatenate("has a message with one end: stage ", v.stage, " never does '", does, "', which stage ",
                           v.other_stage, " needs for its '", action_name(v.other_action), "'");
      return concatenate("has a message with one end: stage ", v.stage, " does '", does, "' ", times(v.count),
                         " and should ", v.limit == 0 ? "never" : "once");
    case Failure::message_order:
      return concatenate("mixes up the order of messages: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " while stage ", v.other_stage, " expects '", action_name(v.other_action), " of micro-batch ",
                         v.other_micro_batch, "'");
    case Failure::use_before_arrival:
      return concatenate("uses data before it is there: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " before the row that provides it");
    case Failure::in_flight_above_limit:
      return concatenate("exceeds its in-flight limit: stage ", v.stage, " holds ", v.count,
                         " micro-batches at once and declares ", v.limit);
    case Failure::slot_overwritten:
      if (v.other_micro_batch == v.micro_batch)
        return concatenate("moves a living micro-batch: stage ", v.stage, " does '", does, "' in slot ", v.count,
                           " in row ", v.row, " but keeps the micro-batch in another slot");
      return concatenate("overwrites a living micro-batch: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " in the slot that still holds micro-batch ", v.other_micro_batch);
    case Failure::deadlock:
      return concatenate("deadlocks: stage ", v.stage, " waits in '", does, "' while stage ", v.other_stage,
                         " waits in '", what_is_done(v.other_action, v.other_micro_batch, v.other_stage), "'");
  }
  return "is refused";
}

}  // namespace detail

/// How sentences about a schedule begin: `dtrain: schedule GPipe with 4 stages and 1 micro-batch `.
inline std::string sentence_start(std::string_view name, int stages, int micro_batches) {
  return concatenate("dtrain: schedule ", name, " with ", stages, stages == 1 ? " stage and " : " stages and ",
                     micro_batches, micro_batches == 1 ? " micro-batch " : " micro-batches ");
}

/// The sentence of a verdict on the schedule called `name`.
[[gnu::cold]] inline std::string describe(const Verdict& verdict, std::string_view name) {
  return sentence_start(name, verdict.stages, verdict.micro_batches) + detail::finding(verdict);
}

/// A timeline: one line per stage, one column per time unit (forward and backward take one each), `F2` for the forward
/// of micro-batch 2, `B2` for its backward, dots where the stage waits. Tables must have been judged sound.
inline std::string draw(std::span<const Table> tables) {
  const Replay replay(tables);
  int last = 0;
  double longest = 0;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    longest = std::max(longest, replay.clock(static_cast<int>(s)));
    for (const Action& action : tables[s].actions) last = std::max(last, action.micro_batch);
  }
  const std::size_t width = concatenate(last).size() + 2;
  std::string out;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    std::string line(static_cast<std::size_t>(longest) * width, ' ');
    for (std::size_t column = 0; column < line.size(); column += width) line[column] = '.';
    for (std::size_t row = 0; row < tables[s].actions.size(); ++row) {
      const Action& action = tables[s].actions[row];
      if (!is_compute(action.kind)) continue;
      const double begin = replay.begin_of(static_cast<int>(s), static_cast<int>(row));
      const std::string cell = concatenate(action.kind == ActionKind::forward ? 'F' : 'B', action.micro_batch);
      line.replace(static_cast<std::size_t>(begin) * width, cell.size(), cell);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += concatenate("stage ", s, " | ", line, "\n");
  }
  return out;
}

}  // namespace dtrain::schedule
