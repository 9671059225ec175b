// Judges the tables of all stages: messages paired, every micro-batch both ways, memory kept, no deadlock.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_census.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_verdict.hpp"

namespace dtrain::schedule {

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
    census_.reserve(tables.size());
  }

  // Written out: nvcc takes the implicit one for not constexpr.
  constexpr ~Judge() = default;

  [[gnu::cold]] constexpr Verdict decide() {
    for (int stage = 0; stage < stages_; ++stage) {
      if (!well_formed(stage)) return verdict_;
      census_.emplace_back(actions(stage), micro_batches_);
    }
    for (int stage = 0; stage < stages_; ++stage)
      if (!both_ways(stage)) return verdict_;
    for (int stage = 0; stage < stages_; ++stage)
      if (!messages_complete(stage)) return verdict_;
    for (int stage = 0; stage + 1 < stages_; ++stage)
      if (!same_order(stage, ActionKind::send_forward, stage + 1, ActionKind::receive_forward) ||
          !same_order(stage + 1, ActionKind::send_backward, stage, ActionKind::receive_backward))
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
    return false;
  }
  constexpr bool fail_count(Failure failure, int stage, ActionKind kind, int micro_batch, int limit) {
    verdict_.failure = failure;
    verdict_.stage = stage;
    verdict_.action = kind;
    verdict_.micro_batch = micro_batch;
    verdict_.count = 0;
    for (const Action& action : actions(stage))
      if (action.kind == kind && action.micro_batch == micro_batch) ++verdict_.count;
    verdict_.limit = limit;
    return false;
  }

  constexpr bool well_formed(int stage) {
    const Action* const action = actions(stage).data();
    const int rows = static_cast<int>(actions(stage).size());
    const int slots = tables_[static_cast<std::size_t>(stage)].slots;
    for (int row = 0; row < rows; ++row) {
      const Action& here = action[row];
      const bool numbers = static_cast<int>(here.kind) < Census::kinds && here.micro_batch >= 0 &&
                           here.micro_batch < micro_batches_ && here.slot >= 0 && here.slot < slots;
      if (!numbers) return fail(Failure::malformed, stage, row);
      if (is_compute(here.kind)) {
        if (here.grouped_with_next) return fail(Failure::malformed, stage, row);
        continue;
      }
      const int partner = partner_of(here.kind, stage);
      const bool group_goes_on = row + 1 < rows && !is_compute(action[row + 1].kind);
      if (partner < 0 || partner >= stages_ || (here.grouped_with_next && !group_goes_on))
        return fail(Failure::malformed, stage, row);
    }
    return true;
  }

  constexpr bool both_ways(int stage) {
    constexpr Failure failure = Failure::forward_backward_mismatch;
    const Census& rows = census(stage);
    if (const int row = rows.repeated(); row != Census::nowhere) {
      const Action action = actions(stage)[static_cast<std::size_t>(row)];
      if (is_compute(action.kind))
        return fail_count(failure, stage, action.kind, action.micro_batch, wanted(stage, action.kind));
    }
    const int* const forwards = rows.rows_of(ActionKind::forward);
    const int* const backwards = rows.rows_of(ActionKind::backward);
    for (int k = 0; k < micro_batches_; ++k) {
      const int forward = forwards[k];
      const int backward = backwards[k];
      if (forward == Census::nowhere) return fail_count(failure, stage, ActionKind::forward, k, 1);
      if ((backward != Census::nowhere) != (pass_ == Pass::training))
        return fail_count(failure, stage, ActionKind::backward, k, wanted(stage, ActionKind::backward));
      if (backward != Census::nowhere && backward < forward) {
        verdict_.count = verdict_.limit = 1;
        return fail(failure, stage, backward);
      }
    }
    return true;
  }

  /// How often a stage does a thing with each micro-batch: once or never.
  constexpr int wanted(int stage, ActionKind kind) const {
    const bool backward =
        kind == ActionKind::backward || kind == ActionKind::send_backward || kind == ActionKind::receive_backward;
    if (backward && pass_ == Pass::forward_only) return 0;
    const int partner = partner_of(kind, stage);
    return partner >= 0 && partner < stages_ ? 1 : 0;
  }

  constexpr bool messages_complete(int stage) {
    for (const ActionKind kind : {ActionKind::send_forward, ActionKind::receive_forward, ActionKind::send_backward,
                                  ActionKind::receive_backward}) {
      const int* const rows = census(stage).rows_of(kind);
      const bool once = wanted(stage, kind) == 1;
      for (int k = 0; k < micro_batches_; ++k)
        if ((rows[k] != Census::nowhere) != once) return one_end(stage, kind, k);
    }
    if (const int row = census(stage).repeated(); row != Census::nowhere) {
      const Action action = actions(stage)[static_cast<std::size_t>(row)];
      return one_end(stage, action.kind, action.micro_batch);
    }
    return true;
  }
  constexpr bool one_end(int stage, ActionKind kind, int micro_batch) {
    verdict_.other_stage = partner_of(kind, stage);
    verdict_.other_action = opposite(kind);
    verdict_.other_micro_batch = micro_batch;
    return fail_count(Failure::unmatched_message, stage, kind, micro_batch, wanted(stage, kind));
  }
  static constexpr ActionKind opposite(ActionKind kind) {
    switch (kind) {
      case ActionKind::send_forward:
        return ActionKind::receive_forward;
      case ActionKind::receive_forward:
        return ActionKind::send_forward;
      case ActionKind::send_backward:
        return ActionKind::receive_backward;
      default:
        return ActionKind::send_backward;
    }
  }

  constexpr bool same_order(int sender, ActionKind send, int receiver, ActionKind receive) {
    const auto& sent = actions(sender);
    const auto& received = actions(receiver);
    std::size_t there = 0;
    for (std::size_t here = 0; here < sent.size(); ++here) {
      if (sent[here].kind != send) continue;
      while (received[there].kind != receive) ++there;  // there are as many: the messages are complete
      if (received[there].micro_batch != sent[here].micro_batch) {
        verdict_.other_stage = receiver;
        verdict_.other_action = receive;
        verdict_.other_micro_batch = received[there].micro_batch;
        return fail(Failure::message_order, sender, static_cast<int>(here));
      }
      ++there;
    }
    return true;
  }

  // Computations stand alone in their groups, so "in an earlier row" means "complete before".
  constexpr bool arrives_before_use(int stage) {
    const int* const arrives = census(stage).rows_of(ActionKind::receive_forward);
    const int* const forward = census(stage).rows_of(ActionKind::forward);
    const int* const leaves = census(stage).rows_of(ActionKind::send_forward);
    const int* const gradient_arrives = census(stage).rows_of(ActionKind::receive_backward);
    const int* const backward = census(stage).rows_of(ActionKind::backward);
    const int* const gradient_leaves = census(stage).rows_of(ActionKind::send_backward);
    for (int k = 0; k < micro_batches_; ++k) {
      // Rows that are nowhere lie before all others: the ends of the pipeline receive nothing.
      int early = Census::nowhere;
      if (arrives[k] > forward[k]) early = forward[k];
      if (leaves[k] != Census::nowhere && leaves[k] < forward[k]) early = leaves[k];
      if (gradient_arrives[k] > backward[k]) early = backward[k];
      if (gradient_leaves[k] != Census::nowhere && gradient_leaves[k] < backward[k]) early = gradient_leaves[k];
      if (early != Census::nowhere) return fail(Failure::use_before_arrival, stage, early);
    }
    return true;
  }

  constexpr bool slots_kept(int stage) {
    constexpr int nobody = -1;
    const Table& table = tables_[static_cast<std::size_t>(stage)];
    const int limit = limits_[static_cast<std::size_t>(stage)];
    const Action* const action = table.actions.data();
    const int rows = static_cast<int>(table.actions.size());
    std::vector<int> owners(static_cast<std::size_t>(table.slots), nobody);
    std::vector<int> homes(static_cast<std::size_t>(micro_batches_), nobody);
    int* const owner = owners.data();
    int* const home = homes.data();
    const int* const last = census(stage).last_rows();
    int alive = 0;
    const auto leave = [&](int row) {
      const int k = action[row].micro_batch;
      if (last[k] != row || home[k] == nobody) return;
      owner[home[k]] = nobody;
      --alive;
    };
    for (int begin = 0, end = 0; begin < rows; begin = end) {
      for (end = begin; action[end].grouped_with_next;) ++end;  // the last row joins nothing: the table is well formed
      ++end;
      const bool exchange = !is_compute(action[begin].kind);
      // Messages of a group leave as others arrive: slots that end here may be taken by what begins here.
      for (int row = begin; exchange && row < end; ++row) leave(row);
      for (int row = begin; row < end; ++row) {
        const Action& here = action[row];
        if (home[here.micro_batch] == nobody) {
          verdict_.limit = limit;
          verdict_.count = ++alive;
          if (alive > limit) return fail(Failure::in_flight_above_limit, stage, row);
          verdict_.other_micro_batch = owner[here.slot];
          if (owner[here.slot] != nobody) return fail(Failure::slot_overwritten, stage, row);
          owner[here.slot] = here.micro_batch;
          home[here.micro_batch] = here.slot;
        } else if (home[here.micro_batch] != here.slot) {
          verdict_.other_micro_batch = here.micro_batch;
          verdict_.count = here.slot;
          return fail(Failure::slot_overwritten, stage, row);
        }
      }
      if (!exchange) leave(begin);
    }
    if (table.slots <= limit) return true;
    verdict_.limit = limit;
    verdict_.count = table.slots;
    return fail(Failure::in_flight_above_limit, stage, 0);
  }

  [[gnu::cold]] constexpr void free_of_deadlock() {
    const Replay replay(tables_);
    for (int stage = 0; stage < stages_; ++stage) {
      if (replay.finished(stage)) continue;
      const int row = replay.waiting_row(stage);
      const int partner = partner_of(actions(stage)[static_cast<std::size_t>(row)].kind, stage);
      // All messages have both their ends by now, so the partner stands before its own: it cannot have finished.
      const Action& other = actions(partner)[static_cast<std::size_t>(replay.waiting_row(partner))];
      verdict_.other_stage = partner;
      verdict_.other_action = other.kind;
      verdict_.other_micro_batch = other.micro_batch;
      fail(Failure::deadlock, stage, row);
      return;
    }
  }

  std::span<const Table> tables_;
  int stages_;
  int micro_batches_;
  std::span<const int> limits_;
  Pass pass_;
  std::vector<Census> census_;
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
