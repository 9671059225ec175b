// Judges the tables of all stages: messages paired, every micro-batch both ways, memory kept, no deadlock.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_census.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_slot_watch.hpp"
#include "dtrain/parallel/schedule_verdict.hpp"

namespace dtrain::schedule {

namespace detail {

class Judge {
 public:
  constexpr Judge(std::span<const Table> tables, int micro_batches, std::span<const int> limits, Pass pass)
      : tables_(tables),
        pipeline_(pipeline_of(tables)),
        stages_(pipeline_.stages),
        chunks_(pipeline_.chunks),
        micro_batches_(micro_batches),
        limits_(limits),
        pass_(pass) {
    verdict_.pipeline = pipeline_;
    verdict_.micro_batches = micro_batches_;
    census_.reserve(tables.size());
  }

  // Written out: nvcc takes the implicit one for not constexpr.
  constexpr ~Judge() = default;

  [[gnu::cold]] constexpr Verdict decide() {
    for (int stage = 0; stage < stages_; ++stage) {
      if (!well_formed(stage)) return verdict_;
      census_.emplace_back(actions(stage), pipeline_, stage, micro_batches_);
    }
    for (int stage = 0; stage < stages_; ++stage)
      if (!both_ways(stage)) return verdict_;
    for (int stage = 0; stage < stages_; ++stage)
      if (!messages_complete(stage)) return verdict_;
    for (int stage = 0; stage < stages_; ++stage)
      if (!same_order(stage, (stage + 1) % stages_) ||
          (stages_ > 2 && !same_order(stage, (stage + stages_ - 1) % stages_)))
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
  constexpr const Census& census(int stage) const { return census_[static_cast<std::size_t>(stage)]; }

  constexpr bool fail(Failure failure, int stage, int row) {
    const Action& action = actions(stage)[static_cast<std::size_t>(row)];
    verdict_.failure = failure;
    verdict_.stage = stage;
    verdict_.row = row;
    verdict_.action = action.kind;
    verdict_.micro_batch = action.micro_batch;
    verdict_.chunk = action.chunk;
    return false;
  }
  constexpr bool fail_count(Failure failure, int stage, ActionKind kind, int chunk, int micro_batch, int limit) {
    verdict_.failure = failure;
    verdict_.stage = stage;
    verdict_.action = kind;
    verdict_.micro_batch = micro_batch;
    verdict_.chunk = chunk;
    verdict_.count = 0;
    for (const Action& action : actions(stage))
      if (action.kind == kind && action.chunk == chunk && action.micro_batch == micro_batch) ++verdict_.count;
    verdict_.limit = limit;
    return false;
  }

  constexpr bool well_formed(int stage) {
    const Table& table = tables_[static_cast<std::size_t>(stage)];
    const Action* const action = table.actions.data();
    const int rows = static_cast<int>(table.actions.size());
    for (int row = 0; row < rows; ++row) {
      const Action& here = action[row];
      const bool numbers = static_cast<int>(here.kind) < action_kinds && here.micro_batch >= 0 &&
                           here.micro_batch < micro_batches_ && here.chunk >= 0 && here.chunk < chunks_ &&
                           here.slot >= 0 && here.slot < table.slots_of(here.chunk);
      if (!numbers || !neighbour_exists(table, stage, here)) return fail(Failure::malformed, stage, row);
      const bool group_goes_on = is_message(here.kind) && row + 1 < rows && is_message(action[row + 1].kind);
      if (here.grouped_with_next && !group_goes_on) return fail(Failure::malformed, stage, row);
    }
    return true;
  }
  // Messages go to another stage, values are handed on within one.
  constexpr bool neighbour_exists(const Table& table, int stage, const Action& here) const {
    if (is_compute(here.kind)) return true;
    const Place partner = partner_of(pipeline_, here.kind, {stage, here.chunk});
    if (is_message(here.kind)) return partner.stage >= 0 && partner.stage != stage;
    return partner.stage == stage && here.from_slot >= 0 && here.from_slot < table.slots_of(partner.chunk);
  }

  constexpr bool both_ways(int stage) {
    constexpr Failure failure = Failure::forward_backward_mismatch;
    if (const int row = census(stage).repeated(); row != Census::nowhere) {
      const Action action = actions(stage)[static_cast<std::size_t>(row)];
      const bool runs = pass_ == Pass::training || action.kind == ActionKind::forward;
      if (is_compute(action.kind))
        return fail_count(failure, stage, action.kind, action.chunk, action.micro_batch, runs ? 1 : 0);
    }
    for (int chunk = 0; chunk < chunks_; ++chunk)
      if (!both_ways(stage, chunk)) return false;
    return true;
  }
  // The backward pass in one piece or in two, not both.
  constexpr bool both_ways(int stage, int chunk) {
    constexpr Failure failure = Failure::forward_backward_mismatch;
    const int* const forwards = census(stage).rows_of(ActionKind::forward, chunk);
    const int* const wholes = census(stage).rows_of(ActionKind::backward, chunk);
    const int* const inputs = census(stage).rows_of(ActionKind::backward_input, chunk);
    const int* const weights = census(stage).rows_of(ActionKind::backward_weight, chunk);
    const int backward = pass_ == Pass::training ? 1 : 0;
    for (int k = 0; k < micro_batches_; ++k) {
      if (forwards[k] == Census::nowhere) return fail_count(failure, stage, ActionKind::forward, chunk, k, 1);
      const bool parts = inputs[k] != Census::nowhere || weights[k] != Census::nowhere;
      const int whole = parts ? 0 : backward;
      const int part = parts ? backward : 0;
      if ((wholes[k] != Census::nowhere) != (whole == 1))
        return fail_count(failure, stage, ActionKind::backward, chunk, k, whole);
      if ((inputs[k] != Census::nowhere) != (part == 1))
        return fail_count(failure, stage, ActionKind::backward_input, chunk, k, part);
      if ((weights[k] != Census::nowhere) != (part == 1))
        return fail_count(failure, stage, ActionKind::backward_weight, chunk, k, part);
      const int first = parts ? inputs[k] : wholes[k];
      int early = Census::nowhere;
      if (first != Census::nowhere && first < forwards[k]) early = first;
      if (parts && weights[k] < inputs[k]) early = weights[k];
      if (early == Census::nowhere) continue;
      verdict_.count = verdict_.limit = 1;
      return fail(failure, stage, early);
    }
    return true;
  }

  // How often a chunk exchanges or is handed each micro-batch in this way: once or never.
  constexpr int wanted(int stage, ActionKind kind, int chunk) const {
    const bool backward =
        kind == ActionKind::send_backward || kind == ActionKind::receive_backward || kind == ActionKind::hand_backward;
    if (backward && pass_ == Pass::forward_only) return 0;
    const int partner = partner_of(pipeline_, kind, {stage, chunk}).stage;
    return partner >= 0 && (partner == stage) == is_hand(kind) ? 1 : 0;
  }

  constexpr bool messages_complete(int stage) {
    for (int chunk = 0; chunk < chunks_; ++chunk)
      for (const ActionKind kind :
           {ActionKind::send_forward, ActionKind::receive_forward, ActionKind::send_backward,
            ActionKind::receive_backward, ActionKind::hand_forward, ActionKind::hand_backward}) {
        const int* const rows = census(stage).rows_of(kind, chunk);
        const bool once = wanted(stage, kind, chunk) == 1;
        for (int k = 0; k < micro_batches_; ++k)
          if ((rows[k] != Census::nowhere) != once) return one_end(stage, kind, chunk, k);
      }
    if (const int row = census(stage).repeated(); row != Census::nowhere) {
      const Action action = actions(stage)[static_cast<std::size_t>(row)];
      return one_end(stage, action.kind, action.chunk, action.micro_batch);
    }
    return true;
  }
  constexpr bool one_end(int stage, ActionKind kind, int chunk, int micro_batch) {
    const Place partner = partner_of(pipeline_, kind, {stage, chunk});
    verdict_.other_stage = partner.stage;
    verdict_.other_chunk = partner.chunk;
    verdict_.other_action = opposite(kind);
    verdict_.other_micro_batch = micro_batch;
    return fail_count(Failure::unmatched_message, stage, kind, chunk, micro_batch, wanted(stage, kind, chunk));
  }
  static constexpr ActionKind opposite(ActionKind kind) {
    switch (kind) {
      case ActionKind::send_forward:
        return ActionKind::receive_forward;
      case ActionKind::receive_forward:
        return ActionKind::send_forward;
      case ActionKind::send_backward:
        return ActionKind::receive_backward;
      case ActionKind::receive_backward:
        return ActionKind::send_backward;
      default:
        return kind;
    }
  }

  // All messages from one stage to another share one channel, of both passes and of all chunks.
  constexpr bool same_order(int sender, int receiver) {
    if (sender == receiver) return true;
    const Action* const sent = actions(sender).data();
    const Action* const received = actions(receiver).data();
    const int* const to = census(sender).partners();
    const int* const from = census(receiver).partners();
    const int rows = static_cast<int>(actions(sender).size());
    int there = 0;
    for (int here = 0; here < rows; ++here) {
      if (to[here] != receiver || !is_send(sent[here].kind)) continue;
      // There are as many: the messages are complete.
      while (from[there] != sender || !is_receive(received[there].kind)) ++there;
      const Action& other = received[there];
      const Place place = partner_of(pipeline_, sent[here].kind, {sender, sent[here].chunk});
      if (other.kind != opposite(sent[here].kind) || other.chunk != place.chunk ||
          other.micro_batch != sent[here].micro_batch) {
        verdict_.other_stage = receiver;
        verdict_.other_chunk = other.chunk;
        verdict_.other_action = other.kind;
        verdict_.other_micro_batch = other.micro_batch;
        return fail(Failure::message_order, sender, here);
      }
      ++there;
    }
    return true;
  }

  constexpr bool arrives_before_use(int stage) {
    for (int chunk = 0; chunk < chunks_; ++chunk)
      if (!arrives_before_use(stage, chunk)) return false;
    return true;
  }
  // Computations stand alone in their groups, so "in an earlier row" means "complete before". Rows that are nowhere lie
  // before all others.
  constexpr bool arrives_before_use(int stage, int chunk) {
    const Census& rows = census(stage);
    const int* const forward = rows.rows_of(ActionKind::forward, chunk);
    const int* const whole = rows.rows_of(ActionKind::backward, chunk);
    const int* const input = rows.rows_of(ActionKind::backward_input, chunk);
    const int* const arrives[] = {rows.rows_of(ActionKind::receive_forward, chunk),
                                  rows.rows_of(ActionKind::hand_forward, chunk)};
    const int* const gradient_arrives[] = {rows.rows_of(ActionKind::receive_backward, chunk),
                                           rows.rows_of(ActionKind::hand_backward, chunk)};
    // A value is handed to the chunk that comes next, or before, on the same stage.
    const int* const leaves[] = {rows.rows_of(ActionKind::send_forward, chunk),
                                 rows.rows_of(ActionKind::hand_forward, chunk + 1 < chunks_ ? chunk + 1 : chunk)};
    const int* const gradient_leaves[] = {rows.rows_of(ActionKind::send_backward, chunk),
                                          rows.rows_of(ActionKind::hand_backward, chunk > 0 ? chunk - 1 : chunk)};
    for (int k = 0; k < micro_batches_; ++k) {
      const int backward = input[k] != Census::nowhere ? input[k] : whole[k];
      int early = Census::nowhere;
      for (const int way : {0, 1}) {
        if (arrives[way][k] > forward[k]) early = forward[k];
        if (gradient_arrives[way][k] > backward) early = backward;
        const bool away = way == 0 || chunk + 1 < chunks_;
        const bool gradient_away = way == 0 || chunk > 0;
        if (away && leaves[way][k] != Census::nowhere && leaves[way][k] < forward[k]) early = leaves[way][k];
        if (gradient_away && gradient_leaves[way][k] != Census::nowhere && gradient_leaves[way][k] < backward)
          early = gradient_leaves[way][k];
      }
      if (early != Census::nowhere) return fail(Failure::use_before_arrival, stage, early);
    }
    return true;
  }

  constexpr bool slots_kept(int stage) {
    SlotWatch watch(tables_[static_cast<std::size_t>(stage)], census(stage).last_rows(), chunks_, micro_batches_,
                    limits_[static_cast<std::size_t>(stage)]);
    if (watch.kept()) return true;
    verdict_.limit = limits_[static_cast<std::size_t>(stage)];
    verdict_.count = watch.count();
    verdict_.other_micro_batch = watch.other_micro_batch();
    fail(watch.failure(), stage, watch.row());
    verdict_.chunk = watch.chunk();
    return false;
  }

  [[gnu::cold]] constexpr void free_of_deadlock() {
    const Replay replay(tables_);
    for (int stage = 0; stage < stages_; ++stage) {
      if (replay.finished(stage)) continue;
      const int row = replay.waiting_row(stage);
      const int partner = census(stage).partners()[row];
      // All messages have both their ends by now, so the partner stands before its own: it cannot have finished.
      const Action& other = actions(partner)[static_cast<std::size_t>(replay.waiting_row(partner))];
      verdict_.other_stage = partner;
      verdict_.other_chunk = other.chunk;
      verdict_.other_action = other.kind;
      verdict_.other_micro_batch = other.micro_batch;
      fail(Failure::deadlock, stage, row);
      return;
    }
  }

  std::span<const Table> tables_;
  VirtualPipeline pipeline_;
  int stages_;
  int chunks_;
  int micro_batches_;
  std::span<const int> limits_;
  Pass pass_;
  std::vector<Census> census_;
  Verdict verdict_{};
};

}  // namespace detail

/// Judges the tables of all stages of one pass over `micro_batches` micro-batches. `limits` holds, per stage, how many
/// micro-batches may be in flight, counted on each chunk. A send is taken to wait for its receive (rendezvous), the
/// strictest behaviour that message libraries allow; see `Replay`.
constexpr Verdict judge(std::span<const Table> tables, int micro_batches, std::span<const int> limits,
                        Pass pass = Pass::training) {
  return detail::Judge(tables, micro_batches, limits, pass).decide();
}

}  // namespace dtrain::schedule
