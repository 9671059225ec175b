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
    case ActionKind::backward_input:
      return "backward of the input";
    case ActionKind::backward_weight:
      return "backward of the weights";
    case ActionKind::hand_forward:
      return "hand forward";
    case ActionKind::hand_backward:
      return "hand backward";
  }
  return "unknown action";
}

namespace detail {

// "send forward of micro-batch 2 to stage 1"; with several chunks "... of micro-batch 2 on chunk 0 to stage 1".
[[gnu::cold]] inline std::string what_is_done(const VirtualPipeline& pipeline, ActionKind kind, Place here,
                                              int micro_batch) {
  std::string text = concatenate(action_name(kind), " of micro-batch ", micro_batch);
  if (pipeline.chunks > 1) text += concatenate(" on chunk ", here.chunk);
  const int partner = partner_of(pipeline, kind, here).stage;
  if (is_message(kind) && partner >= 0) text += concatenate(is_send(kind) ? " to stage " : " from stage ", partner);
  return text;
}

inline std::string times(int count) {
  if (count == 0) return "never";
  return count == 1 ? "once" : concatenate(count, " times");
}

[[gnu::cold]] inline std::string finding(const Verdict& v) {
  const std::string does = what_is_done(v.pipeline, v.action, {v.stage, v.chunk}, v.micro_batch);
  const std::string other =
      what_is_done(v.pipeline, v.other_action, {v.other_stage, v.other_chunk}, v.other_micro_batch);
  switch (v.failure) {
    case Failure::none:
      return "is sound";
    case Failure::malformed:
      return concatenate(
          "has a row that means nothing: row ", v.row, " of stage ", v.stage, " (", does,
          ") names a micro-batch, chunk, slot or neighbour that does not exist, or groups a computation");
    case Failure::forward_backward_mismatch:
      if (v.count == v.limit)
        return concatenate("mismatches forward and backward: stage ", v.stage, " runs the ", does, " in row ", v.row,
                           ", before its ",
                           v.action == ActionKind::backward_weight ? "backward of the input" : "forward");
      return concatenate("mismatches forward and backward: stage ", v.stage, " runs the ", does, " ", times(v.count),
                         " instead of ", times(v.limit));
    case Failure::unmatched_message:
      if (is_hand(v.action))
        return concatenate("does not hand values on from chunk to chunk: stage ", v.stage, " does '", does, "' ",
                           times(v.count), " and should ", v.limit == 0 ? "never" : "once");
      if (v.count < v.limit)
        return concatenate("has a message with one end: stage ", v.stage, " never does '", does, "', which stage ",
                           v.other_stage, " needs for its '", action_name(v.other_action), "'");
      return concatenate("has a message with one end: stage ", v.stage, " does '", does, "' ", times(v.count),
                         " and should ", v.limit == 0 ? "never" : "once");
    case Failure::message_order:
      return concatenate("mixes up the order of messages: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " while stage ", v.other_stage, " expects '", action_name(v.other_action), " of micro-batch ",
                         v.other_micro_batch,
                         v.pipeline.chunks > 1 ? concatenate(" on chunk ", v.other_chunk) : std::string(), "'");
    case Failure::use_before_arrival:
      return concatenate("uses data before it is there: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " before the row that provides it");
    case Failure::in_flight_above_limit:
      return concatenate("exceeds its in-flight limit: stage ", v.stage, " holds ", v.count,
                         v.pipeline.chunks > 1 ? " micro-batches on its chunks" : " micro-batches",
                         " at once and declares ", v.limit);
    case Failure::slot_overwritten:
      if (v.other_micro_batch == v.micro_batch)
        return concatenate("moves a living micro-batch: stage ", v.stage, " does '", does, "' in slot ", v.count,
                           " in row ", v.row, " but keeps the micro-batch in another slot");
      return concatenate("overwrites a living micro-batch: stage ", v.stage, " does '", does, "' in row ", v.row,
                         " in the slot that still holds micro-batch ", v.other_micro_batch);
    case Failure::deadlock:
      return concatenate("deadlocks: stage ", v.stage, " waits in '", does, "' while stage ", v.other_stage,
                         " waits in '", other, "'");
  }
  return "is refused";
}

}  // namespace detail

/// How sentences about a schedule begin: `dtrain: schedule GPipe with 4 stages and 1 micro-batch `.
[[gnu::cold]] inline std::string sentence_start(std::string_view name, int stages, int micro_batches, int chunks = 1) {
  return concatenate("dtrain: schedule ", name, " with ", stages, stages == 1 ? " stage" : " stages",
                     chunks == 1 ? std::string() : concatenate(" of ", chunks, " chunks"), " and ", micro_batches,
                     micro_batches == 1 ? " micro-batch " : " micro-batches ");
}

/// The sentence of a verdict on the schedule called `name`.
[[gnu::cold]] inline std::string describe(const Verdict& verdict, std::string_view name) {
  return sentence_start(name, verdict.pipeline.stages, verdict.micro_batches, verdict.pipeline.chunks) +
         detail::finding(verdict);
}

namespace detail {
/// Whether any backward pass is run in two parts.
constexpr bool splits_backward(std::span<const Table> tables) {
  for (const Table& table : tables)
    for (const Action& action : table.actions)
      if (action.kind == ActionKind::backward_input) return true;
  return false;
}
/// The letter of a computation in timelines.
constexpr char letter_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return 'F';
    case ActionKind::backward:
      return 'B';
    case ActionKind::backward_input:
      return 'I';
    default:
      return 'W';
  }
}
}  // namespace detail

/// A timeline: one line per stage, one column per time unit, `F2` for the forward of micro-batch 2, `B2` for its
/// backward, `I2` and `W2` where the backward is run in two parts, for input and weights; dots where the stage waits.
/// With several chunks the chunk follows, `F2.1`. Each computation takes one time unit, beside backwards in two parts a
/// whole one takes two, the second marked `=`. Tables must have been judged sound.
[[gnu::cold]] inline std::string draw(std::span<const Table> tables) {
  const bool parts = detail::splits_backward(tables);
  const Replay replay(tables, parts ? Costs{} : Costs::equal_passes());
  const int chunks = pipeline_of(tables).chunks;
  int last = 0;
  double longest = 0;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    longest = std::max(longest, replay.clock(static_cast<int>(s)));
    for (const Action& action : tables[s].actions) last = std::max(last, action.micro_batch);
  }
  const auto cell_of = [&](const Action& action) {
    std::string cell = concatenate(detail::letter_of(action.kind), action.micro_batch);
    if (chunks > 1) cell += concatenate('.', action.chunk);
    return cell;
  };
  const std::size_t width = cell_of({ActionKind::forward, last}).size() + 1;
  std::string out;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    std::string line(static_cast<std::size_t>(longest) * width, ' ');
    for (std::size_t column = 0; column < line.size(); column += width) line[column] = '.';
    for (std::size_t row = 0; row < tables[s].actions.size(); ++row) {
      const Action& action = tables[s].actions[row];
      if (!is_compute(action.kind)) continue;
      const double begin = replay.begin_of(static_cast<int>(s), static_cast<int>(row));
      const std::size_t column = static_cast<std::size_t>(begin) * width;
      const std::string cell = cell_of(action);
      line.replace(column, cell.size(), cell);
      if (parts && action.kind == ActionKind::backward) line[column + width] = '=';
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += concatenate("stage ", s, " | ", line, "\n");
  }
  return out;
}

}  // namespace dtrain::schedule
