// Derives sends and receives from compute orders, so that both sides agree and no wait closes a circle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

namespace detail {

// Runs compute orders in unit time and writes the tables as it goes. A stage takes its next item in the first time unit
// in which the item's inputs were produced in an earlier one. Where no stage can go on, the orders wait for each other
// in a circle: then every stage is pushed on by one item, so that tables still come out and the judge names the circle.
class Derivation {
 public:
  constexpr Derivation(const std::vector<std::vector<Compute>>& orders, int micro_batches)
      : stages_(static_cast<int>(orders.size())),
        micro_batches_(std::max(micro_batches, 0)),
        tables_(orders.size()),
        lines_(orders.size()),
        progress_(static_cast<std::size_t>(2 * stages_ * micro_batches_), open) {
    for (std::size_t s = 0; s < orders.size(); ++s) {
      lines_[s].items = orders[s].data();
      lines_[s].end = orders[s].data() + orders[s].size();
      lines_[s].progress = progress_.data() + 2 * s * static_cast<std::size_t>(micro_batches_);
      lines_[s].actions = &tables_[s].actions;
      tables_[s].actions.reserve(3 * orders[s].size());  // two messages for each item, at most
    }
  }

  constexpr std::vector<Table> tables() {
    Line* const lines = lines_.data();
    while (choose(lines, false) || choose(lines, true)) {
      exchange(lines);
      compute(lines);
    }
    exchange(lines);  // what circles have left over
    for (Table& table : tables_) assign_slots(table);
    return std::move(tables_);
  }

 private:
  // What has become of one computation: not run; not run, but its consumer was pushed and waits for it; run.
  static constexpr int open = 0;
  static constexpr int awaited = 1;
  static constexpr int run = 2;

  // Where one stage stands in its order.
  struct Line {
    const Compute* items = nullptr;  // the next one first
    const Compute* end = nullptr;
    int* progress = nullptr;  // of each forward, then of each backward
    std::vector<Action>* actions = nullptr;
    std::size_t phase = 0;  // the row the phase began at
    bool runs = false;      // computes in this time unit
    bool asks = false;      // and needs a message for it
  };

  constexpr bool exists(int micro_batch) const { return micro_batch >= 0 && micro_batch < micro_batches_; }
  constexpr int place(Compute item) const {
    return item.work == Work::forward ? item.micro_batch : micro_batches_ + item.micro_batch;
  }

  // Which stages compute in this time unit; everything that has run ran in an earlier one.
  constexpr bool choose(Line* lines, bool push) {
    bool any = false;
    for (int stage = 0; stage < stages_; ++stage) {
      Line& line = lines[stage];
      line.runs = line.asks = false;
      if (line.items == line.end) continue;
      const Compute item = *line.items;
      line.runs = true;
      any = true;
      if (!exists(item.micro_batch)) continue;
      const int here = place(item);
      const bool forward = item.work == Work::forward;
      const int producer = forward ? stage - 1 : stage + 1;
      const bool crosses = producer >= 0 && producer < stages_;
      line.asks = crosses && line.progress[here] != run;
      if (push) continue;
      line.runs =
          (!crosses || lines[producer].progress[here] == run) && (forward || line.progress[item.micro_batch] == run);
      if (!line.runs) line.asks = false;
    }
    if (push) return any;
    for (int stage = 0; stage < stages_; ++stage)
      if (lines[stage].runs) return true;
    return false;
  }

  // The phase before this time unit: what its items need is sent and received, one group on each stage.
  constexpr void exchange(Line* lines) {
    for (const Late& late : late_) add(lines[late.stage], late.kind, late.micro_batch);
    late_.clear();
    for (int stage = 0; stage < stages_; ++stage) {
      if (!lines[stage].asks) continue;
      const Compute item = *lines[stage].items;
      const bool forward = item.work == Work::forward;
      Line& producer = lines[forward ? stage - 1 : stage + 1];
      if (producer.progress[place(item)] == run)
        add(producer, forward ? ActionKind::send_forward : ActionKind::send_backward, item.micro_batch);
      else
        producer.progress[place(item)] = awaited;
    }
    for (int stage = 0; stage < stages_; ++stage) {
      Line& line = lines[stage];
      if (line.asks)
        add(line, line.items->work == Work::forward ? ActionKind::receive_forward : ActionKind::receive_backward,
            line.items->micro_batch);
      Action* const actions = line.actions->data();
      const std::size_t rows = line.actions->size();
      for (std::size_t row = line.phase; row + 1 < rows; ++row) actions[row].grouped_with_next = true;
      line.phase = rows;
    }
  }

  constexpr void compute(Line* lines) {
    for (int stage = 0; stage < stages_; ++stage) {
      Line& line = lines[stage];
      if (!line.runs) continue;
      const Compute item = *line.items++;
      const bool forward = item.work == Work::forward;
      line.asks = false;
      add(line, forward ? ActionKind::forward : ActionKind::backward, item.micro_batch);
      line.phase = line.actions->size();
      if (!exists(item.micro_batch)) continue;
      int& progress = line.progress[place(item)];
      // A consumer that was pushed gets its message only now; the judge will find the circle.
      if (progress == awaited)
        late_.push_back({stage, forward ? ActionKind::send_forward : ActionKind::send_backward, item.micro_batch});
      progress = run;
    }
  }

  static constexpr void add(Line& line, ActionKind kind, int micro_batch) {
    line.actions->push_back({kind, micro_batch});
  }

  struct Late {
    int stage;
    ActionKind kind;
    int micro_batch;
  };

  int stages_;
  int micro_batches_;
  std::vector<Table> tables_;
  std::vector<Line> lines_;
  std::vector<int> progress_;
  std::vector<Late> late_;
};

}  // namespace detail

/// The tables of all stages for the given compute orders (one per stage).
///
/// The orders run in unit time. A message is exchanged in the phase just before the time unit its consumer runs in, by
/// both sides; all messages of one stage and phase form one group. Phases are ordered alike on all stages, so no set of
/// rendezvous waits can close a circle, and messages of one direction keep one order. For one-forward-one-backward
/// orders this gives the paired "send forward, receive backward" exchanges of D. Narayanan et al., "Efficient
/// large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2.
///
/// Orders that wait for each other, or leave something out, give tables that the judge refuses.
[[gnu::cold]] constexpr std::vector<Table> derive_communication(const std::vector<std::vector<Compute>>& orders,
                                                                int micro_batches) {
  return detail::Derivation(orders, micro_batches).tables();
}

}  // namespace dtrain::schedule
