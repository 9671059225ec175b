// Judges the tables of all stages: messages paired, every micro-batch both ways, memory kept, no deadlock.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_replay.hpp"

namespace dtrain::schedule {

/// What is wrong with a set of tables. Checked in this order; the first that fails is reported.
enum class Failure : unsigned char {
  none,
  malformed,                  // a row that means nothing: no such micro-batch, slot or neighbour, a group with a hole
  forward_backward_mismatch,  // a micro-batch not exactly once forward and then once backward on a stage
  unmatched_message,          // a send without its receive, a receive without its send, or a message sent twice
  message_order,              // two stages exchange the same micro-batches in different orders
  use_before_arrival,         // a computation before its input came, or a send before there is something to send
  in_flight_above_limit,      // more micro-batches alive than the schedule declares
  slot_overwritten,           // two living micro-batches in one slot, or one micro-batch in two
  deadlock                    // stages wait for each other when a send waits for its receive
};

/// The judge's finding: `failure`, and where. Which of the fields hold something depends on the failure.
struct Verdict {
  Failure failure = Failure::none;
  int stages = 0;
  int micro_batches = 0;
  int stage = 0;
  int micro_batch = 0;
  ActionKind action = ActionKind::forward;
  /// Row of the stage's table.
  int row = 0;
  /// The stage it should agree with, and what that one does instead.
  int other_stage = 0;
  int other_micro_batch = 0;
  ActionKind other_action = ActionKind::forward;
  /// How many there are, and how many there should be (times, slots).
  int count = 0;
  int limit = 0;

  [[nodiscard]] constexpr bool ok() const { return failure == Failure::none; }
};

namespace detail {

class Judge {
 public:
  constexpr Judge(std::span<const Table> tables, int micro_batches, std::span<const int> limits, Pass pass)
      : tables_(tables),
        stages_(static_cast<int>(tables.size())),
        micro_batches_(micro_batches),
        limits_(limits),
        pass_(pass) {
    verdict_.stages = stages_;
    verdict_.micro_batches = micro_batches_;
  }

  constexpr Verdict decide() {
    for (int stage = 0; stage < stages_; ++stage)
      if (!well_formed(stage)) return verdict_;
    for (int stage = 0; stage < stages_; ++stage)
      if (!both_ways(stage)) return verdict_;
    for (int stage = 0; stage + 1 < stages_; ++stage)
      if (!messages_match(stage, ActionKind::send_forward, stage + 1, ActionKind::receive_forward) ||
          !messages_match(stage + 1, ActionKind::send_backward, stage, ActionKind::receive_backward))
        return verdict_;
    for (int stage = 0; stage < stages_; ++stage)
      if (!arrives_before_use(stage) || !slots_kept(stage)) return verdict_;
    free_of_deadlock();
    return verdict_;
  }

 private:
  constexpr const std::vector<Action>& actions(int stage) const {
    return tables_[static_cast<std::size_t>(stage)].actions;
  }
  constexpr std::size_t count() const { return static_cast<std::size_t>(micro_batches_); }

  constexpr bool fail(Failure failure, int stage, std::size_t row) {
    verdict_.failure = failure;
    verdict_.stage = stage;
    verdict_.row = static_cast<int>(row);
    if (row < actions(stage).size()) {
      verdict_.action = actions(stage)[row].kind;
      verdict_.micro_batch = actions(stage)[row].micro_batch;
    }
    return false;
  }
  constexpr bool fail_about(Failure failure, int stage, ActionKind action, std::size_t micro_batch, int count,
                            int limit) {
    verdict_.count = count;
    verdict_.limit = limit;
    fail(failure, stage, actions(stage).size());
    verdict_.action = action;
    verdict_.micro_batch = static_cast<int>(micro_batch);
    return false;
  }

  constexpr bool well_formed(int stage) {
    const auto& rows = actions(stage);
    const int slots = tables_[static_cast<std::size_t>(stage)].slots;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const Action& action = rows[row];
      const int partner = partner_of(action.kind, stage);
      const bool joins_message = row + 1 < rows.size() && !is_compute(action.kind) && !is_compute(rows[row + 1].kind);
      if (static_cast<int>(action.kind) > static_cast<int>(ActionKind::receive_backward) || partner < 0 ||
          partner >= stages_ || action.micro_batch < 0 || action.micro_batch >= micro_batches_ || action.slot < 0 ||
          action.slot >= slots || (action.grouped_with_next && !joins_message))
        return fail(Failure::malformed, stage, row);
    }
    return true;
  }

  constexpr bool both_ways(int stage) {
    std::vector<int> forwards(count(), 0), backwards(count(), 0);
    for (std::size_t row = 0; row < actions(stage).size(); ++row) {
      const Action& action = actions(stage)[row];
      const auto k = static_cast<std::size_t>(action.micro_batch);
      if (action.kind == ActionKind::forward) ++forwards[k];
      if (action.kind == ActionKind::backward && ++backwards[k] > forwards[k]) {
        // Once, but too early; or more often than forward.
        verdict_.count = backwards[k];
        verdict_.limit = forwards[k];
        return fail(Failure::forward_backward_mismatch, stage, row);
      }
    }
    const int wanted_backwards = pass_ == Pass::training ? 1 : 0;
    for (std::size_t k = 0; k < count(); ++k) {
      if (forwards[k] != 1)
        return fail_about(Failure::forward_backward_mismatch, stage, ActionKind::forward, k, forwards[k], 1);
      if (backwards[k] != wanted_backwards)
        return fail_about(Failure::forward_backward_mismatch, stage, ActionKind::backward, k, backwards[k],
                          wanted_backwards);
    }
    return true;
  }

  constexpr std::vector<int> sequence(int stage, ActionKind kind) const {
    std::vector<int> found;
    for (const Action& action : actions(stage))
      if (action.kind == kind) found.push_back(action.micro_batch);
    return found;
  }

  constexpr bool messages_match(int sender, ActionKind send, int receiver, ActionKind receive) {
    const std::vector<int> sent = sequence(sender, send), received = sequence(receiver, receive);
    std::vector<int> sends(count(), 0), receives(count(), 0);
    for (const int k : sent) ++sends[static_cast<std::size_t>(k)];
    for (const int k : received) ++receives[static_cast<std::size_t>(k)];
    const int wanted = send == ActionKind::send_forward || pass_ == Pass::training ? 1 : 0;
    for (std::size_t k = 0; k < count(); ++k) {
      verdict_.other_stage = sends[k] != wanted ? receiver : sender;
      verdict_.other_action = sends[k] != wanted ? receive : send;
      verdict_.other_micro_batch = static_cast<int>(k);
      if (sends[k] != wanted) return fail_about(Failure::unmatched_message, sender, send, k, sends[k], wanted);
      if (receives[k] != wanted)
        return fail_about(Failure::unmatched_message, receiver, receive, k, receives[k], wanted);
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (sent[i] == received[i]) continue;
      verdict_.other_stage = receiver;
      verdict_.other_action = receive;
      verdict_.other_micro_batch = received[i];
      return fail_about(Failure::message_order, sender, send, static_cast<std::size_t>(sent[i]), static_cast<int>(i),
                        0);
    }
    return true;
  }

  // Reads what a stage holds of each micro-batch, row by row; the rows of a group see what was there before the group.
  constexpr bool arrives_before_use(int stage) {
    // char, not bool: constant evaluation of vector<bool> fails in some compilers.
    std::vector<char> input(count(), stage == 0), output(count(), 0);
    std::vector<char> output_gradient(count(), stage + 1 == stages_), input_gradient(count(), 0);
    const auto& rows = actions(stage);
    for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
      end = group_end(rows, begin);
      for (std::size_t row = begin; row < end; ++row) {
        const auto k = static_cast<std::size_t>(rows[row].micro_batch);
        const ActionKind kind = rows[row].kind;
        if ((kind == ActionKind::forward && input[k] == 0) || (kind == ActionKind::send_forward && output[k] == 0) ||
            (kind == ActionKind::backward && output_gradient[k] == 0) ||
            (kind == ActionKind::send_backward && input_gradient[k] == 0))
          return fail(Failure::use_before_arrival, stage, row);
      }
      for (std::size_t row = begin; row < end; ++row) {
        const auto k = static_cast<std::size_t>(rows[row].micro_batch);
        switch (rows[row].kind) {
          case ActionKind::receive_forward:
            input[k] = 1;
            break;
          case ActionKind::forward:
            output[k] = 1;
            break;
          case ActionKind::receive_backward:
            output_gradient[k] = 1;
            break;
          case ActionKind::backward:
            input_gradient[k] = 1;
            break;
          default:
            break;
        }
      }
    }
    return true;
  }

  constexpr bool slots_kept(int stage) {
    const Table& table = tables_[static_cast<std::size_t>(stage)];
    const int limit = limits_[static_cast<std::size_t>(stage)];
    verdict_.limit = limit;
    verdict_.count = table.slots;
    const auto& rows = table.actions;
    std::vector<std::size_t> last(count(), 0);
    for (std::size_t row = 0; row < rows.size(); ++row) last[static_cast<std::size_t>(rows[row].micro_batch)] = row;
    constexpr int nobody = -1;
    std::vector<int> owner(static_cast<std::size_t>(table.slots), nobody), home(count(), nobody);
    int alive = 0;
    for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
      end = group_end(rows, begin);
      const bool exchange = !is_compute(rows[begin].kind);
      // Messages of a group leave as others arrive: slots that end here may be taken by what begins here.
      const auto leave = [&] {
        for (std::size_t row = begin; row < end; ++row) {
          const auto k = static_cast<std::size_t>(rows[row].micro_batch);
          if (last[k] != row || home[k] == nobody) continue;
          owner[static_cast<std::size_t>(home[k])] = nobody;
          --alive;
        }
      };
      if (exchange) leave();
      for (std::size_t row = begin; row < end; ++row) {
        const auto k = static_cast<std::size_t>(rows[row].micro_batch);
        if (home[k] == nobody) {
          verdict_.count = ++alive;
          if (alive > limit) return fail(Failure::in_flight_above_limit, stage, row);
          int& occupant = owner[static_cast<std::size_t>(rows[row].slot)];
          verdict_.other_micro_batch = occupant;
          if (occupant != nobody) return fail(Failure::slot_overwritten, stage, row);
          occupant = rows[row].micro_batch;
          home[k] = rows[row].slot;
        } else if (home[k] != rows[row].slot) {
          verdict_.other_micro_batch = rows[row].micro_batch;
          verdict_.count = rows[row].slot;
          return fail(Failure::slot_overwritten, stage, row);
        }
      }
      if (!exchange) leave();
    }
    verdict_.count = table.slots;
    if (table.slots > limit) return fail(Failure::in_flight_above_limit, stage, rows.size());
    return true;
  }

  constexpr bool free_of_deadlock() {
    const Replay replay(tables_);
    for (int stage = 0; stage < stages_; ++stage) {
      if (replay.finished(stage)) continue;
      const std::size_t row = replay.waiting_row(stage);
      const int partner = partner_of(actions(stage)[row].kind, stage);
      // All messages have both their ends by now, so the partner stands before its end: it cannot have finished.
      const Action& other = actions(partner)[replay.waiting_row(partner)];
      verdict_.other_stage = partner;
      verdict_.other_action = other.kind;
      verdict_.other_micro_batch = other.micro_batch;
      return fail(Failure::deadlock, stage, row);
    }
    return true;
  }

  std::span<const Table> tables_;
  int stages_;
  int micro_batches_;
  std::span<const int> limits_;
  Pass pass_;
  Verdict verdict_{};
};

}  // namespace detail

/// Judges the tables of all stages of one pass over `micro_batches` micro-batches. `limits` holds, per stage, how many
/// micro-batches may be in flight. A send is taken to wait for its receive (rendezvous), the strictest behaviour that
/// message libraries allow; see `Replay`.
constexpr Verdict judge(std::span<const Table> tables, int micro_batches, std::span<const int> limits,
                        Pass pass = Pass::training) {
  return detail::Judge(tables, micro_batches, limits, pass).decide();
}

}  // namespace dtrain::schedule
