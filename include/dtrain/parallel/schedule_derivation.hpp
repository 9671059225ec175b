// Derives sends and receives from compute orders, so that both sides agree and no wait closes a circle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_slots.hpp"

namespace dtrain::schedule {

namespace detail {

// Runs compute orders in unit time and writes the tables as it goes. A stage takes its next item in the first time unit
// in which the item's inputs were produced in an earlier one. Where no stage can go on, the orders wait for each other
// in a circle: then every stage is pushed on by one item, so that tables still come out and the judge names the circle.
class Derivation {
 public:
  constexpr Derivation(const std::vector<std::vector<Compute>>& orders, int micro_batches, int chunks,
                       Placement placement)
      : pipeline_{static_cast<int>(orders.size()), chunks, placement},
        micro_batches_(std::max(micro_batches, 0)),
        tables_(orders.size()),
        lines_(orders.size()),
        progress_(static_cast<std::size_t>(2 * pipeline_.virtual_stages() * micro_batches_), open) {
    for (std::size_t s = 0; s < orders.size(); ++s) {
      lines_[s].items = orders[s].data();
      lines_[s].end = orders[s].data() + orders[s].size();
      lines_[s].actions = &tables_[s].actions;
      tables_[s].actions.reserve(3 * orders[s].size());  // two messages for each item, at most
      tables_[s].slots.assign(static_cast<std::size_t>(chunks), 0);
      tables_[s].placement = placement;
    }
  }

  constexpr std::vector<Table> tables() {
    Line* const lines = lines_.data();
    while (choose(lines, false) || choose(lines, true)) {
      exchange(lines);
      compute(lines);
    }
    exchange(lines);  // what the last time unit and circles have left over
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
    std::vector<Action>* actions = nullptr;
    std::size_t phase = 0;  // the row the phase began at
    bool runs = false;      // computes in this time unit
    bool asks = false;      // and needs a message for it
    Place giver{};          // from there
  };
  // A message between two stages.
  struct Message {
    bool forward;
    Place from;
    Place to;
    int micro_batch;
    bool one_end;  // its receive was written before: the consumer was pushed
  };

  constexpr bool exists(const Compute& item) const {
    return item.micro_batch >= 0 && item.micro_batch < micro_batches_ && item.chunk >= 0 &&
           item.chunk < pipeline_.chunks;
  }
  // Of a forward, or of a backward, whose first part counts.
  constexpr int& progress(bool forward, Place place, int micro_batch) {
    const int number = 2 * pipeline_.virtual_stage(place) + (forward ? 0 : 1);
    return progress_[static_cast<std::size_t>(number * micro_batches_ + micro_batch)];
  }

  // Which stages compute in this time unit; everything that has run ran in an earlier one.
  constexpr bool choose(Line* lines, bool push) {
    bool any = false;
    for (int stage = 0; stage < pipeline_.stages; ++stage) {
      Line& line = lines[stage];
      line.asks = false;
      line.runs = line.items != line.end && ready(line, stage, push);
      any = any || line.runs;
    }
    return any;
  }
  // An item that does not exist runs at once: the judge will find it.
  constexpr bool ready(Line& line, int stage, bool push) {
    const Compute item = *line.items;
    if (!exists(item)) return true;
    const Place here{stage, item.chunk};
    if (item.work == Work::backward_weight) return push || progress(false, here, item.micro_batch) == run;
    const bool forward = item.work == Work::forward;
    line.giver = partner_of(pipeline_, forward ? ActionKind::receive_forward : ActionKind::receive_backward, here);
    const bool there = line.giver.stage < 0 || progress(forward, line.giver, item.micro_batch) == run;
    if (!push && (!there || (!forward && progress(true, here, item.micro_batch) != run))) return false;
    // Gradients are on their way since they were made.
    line.asks = line.giver.stage >= 0 && line.giver.stage != stage && (forward || !there) &&
                progress(forward, here, item.micro_batch) != run;
    return true;
  }

  // The phase before this time unit: gradients that were made in the last one, and the activations that this one needs.
  // All sends of a stage are written before its receives, both in the order of this list, so that the messages from one
  // stage to another have one order on both sides.
  constexpr void exchange(Line* lines) {
    for (int stage = 0; stage < pipeline_.stages; ++stage) {
      Line& line = lines[stage];
      if (!line.asks) continue;
      const Compute item = *line.items;
      const bool forward = item.work == Work::forward;
      if (int& made = progress(forward, line.giver, item.micro_batch); made != run) {
        made = awaited;
        add(line, {forward ? ActionKind::receive_forward : ActionKind::receive_backward, item.micro_batch}, item.chunk);
      } else {
        messages_.push_back({forward, line.giver, {stage, item.chunk}, item.micro_batch, false});
      }
    }
    for (const Message& message : messages_)
      add(lines[message.from.stage],
          {message.forward ? ActionKind::send_forward : ActionKind::send_backward, message.micro_batch},
          message.from.chunk);
    for (const Message& message : messages_)
      if (!message.one_end)
        add(lines[message.to.stage],
            {message.forward ? ActionKind::receive_forward : ActionKind::receive_backward, message.micro_batch},
            message.to.chunk);
    messages_.clear();
    for (int stage = 0; stage < pipeline_.stages; ++stage) close(lines[stage]);
  }
  static constexpr void close(Line& line) {
    Action* const actions = line.actions->data();
    const std::size_t rows = line.actions->size();
    for (std::size_t row = line.phase; row + 1 < rows; ++row) actions[row].grouped_with_next = true;
    line.phase = rows;
  }

  constexpr void compute(Line* lines) {
    for (int stage = 0; stage < pipeline_.stages; ++stage) {
      Line& line = lines[stage];
      if (!line.runs) continue;
      const Compute item = *line.items++;
      line.asks = false;
      const bool forward = item.work == Work::forward;
      const bool weights = item.work == Work::backward_weight;
      const Place here{stage, item.chunk};
      if (!exists(item) || weights || progress(forward, here, item.micro_batch) == run) {
        add(line, {action_of(item.work), item.micro_batch}, item.chunk);
      } else {
        if (forward && line.giver.stage == stage) add(line, {ActionKind::hand_forward, item.micro_batch}, item.chunk);
        add(line, {action_of(item.work), item.micro_batch}, item.chunk);
        give(line, forward, here, item.micro_batch);
      }
      line.phase = line.actions->size();
    }
  }
  // Activations leave when they are needed, for their slot is held anyway; gradients leave at once, and free it.
  constexpr void give(Line& line, bool forward, Place here, int micro_batch) {
    const Place to = partner_of(pipeline_, forward ? ActionKind::send_forward : ActionKind::send_backward, here);
    int& made = progress(forward, here, micro_batch);
    // A consumer that was pushed gets its message only now; the judge will find the circle.
    const bool late = std::exchange(made, run) == awaited;
    if (to.stage < 0) return;
    if (to.stage != here.stage) {
      if (late || !forward) messages_.push_back({forward, here, to, micro_batch, late});
    } else if (!forward) {
      add(line, {ActionKind::hand_backward, micro_batch}, to.chunk);
    }
  }

  static constexpr void add(Line& line, Action action, int chunk) {
    action.chunk = chunk;
    line.actions->push_back(action);
  }

  VirtualPipeline pipeline_;
  int micro_batches_;
  std::vector<Table> tables_;
  std::vector<Line> lines_;
  std::vector<int> progress_;
  std::vector<Message> messages_;
};

}  // namespace detail

/// The tables of all stages for the given compute orders (one per stage), each of which names `chunks` chunks.
///
/// The orders run in unit time. An activation is exchanged in the phase just before the time unit its consumer runs in,
/// a gradient in the phase just after the one it was made in, by both sides; all messages of one stage and phase form
/// one group. Phases are ordered alike on all stages, so no set of rendezvous waits can close a circle, and the
/// messages from one stage to another keep one order, whatever chunks and passes they belong to. For
/// one-forward-one-backward orders this gives the paired "send forward, receive backward" exchanges of D. Narayanan et
/// al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2.
///
/// Orders that wait for each other, or leave something out, give tables that the judge refuses.
[[gnu::cold]] constexpr std::vector<Table> derive_communication(const std::vector<std::vector<Compute>>& orders,
                                                                int micro_batches, int chunks = 1,
                                                                Placement placement = Placement::looped) {
  return detail::Derivation(orders, micro_batches, chunks, placement).tables();
}

}  // namespace dtrain::schedule
