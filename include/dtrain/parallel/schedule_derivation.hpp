// Derives sends and receives from compute orders, so that both sides agree and no wait closes a cycle.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

namespace detail {

// Runs compute orders in unit time. A stage takes its next item in the first time unit in which the item's inputs were
// produced in an earlier one. Where no stage can go on, the orders wait for each other in a circle: then every stage is
// pushed on by one item, so that tables still come out and the judge names the circle.
class UnitTime {
 public:
  constexpr UnitTime(const std::vector<std::vector<Compute>>& orders, int micro_batches)
      : orders_(orders),
        stages_(static_cast<int>(orders.size())),
        micro_batches_(micro_batches),
        done_(orders.size() * static_cast<std::size_t>(2 * (micro_batches > 0 ? micro_batches : 0)), never),
        next_(orders.size(), 0),
        when_(orders.size()) {
    std::size_t left = 0;
    for (const auto& order : orders) left += order.size();
    for (; left > 0; ++length_) {
      std::size_t advanced = advance(false);
      if (advanced == 0) advanced = advance(true);
      left -= advanced;
    }
  }

  static constexpr int never = -1;

  [[nodiscard]] constexpr int length() const { return length_; }
  [[nodiscard]] constexpr int when(std::size_t stage, std::size_t item) const { return when_[stage][item]; }
  /// The time unit in which a stage computes an item; `never` where it does not, or where there is no such stage.
  [[nodiscard]] constexpr int done(int stage, Compute item) const {
    return inside(stage, item) ? done_[place(stage, item)] : never;
  }
  [[nodiscard]] constexpr bool inside(int stage, Compute item) const {
    return stage >= 0 && stage < stages_ && item.micro_batch >= 0 && item.micro_batch < micro_batches_;
  }

 private:
  constexpr std::size_t place(int stage, Compute item) const {
    return static_cast<std::size_t>((stage * 2 + (item.work == Work::forward ? 0 : 1)) * micro_batches_ +
                                    item.micro_batch);
  }
  constexpr bool produced(int stage, Compute item) const {
    const int time = done_[place(stage, item)];
    return time != never && time < length_;
  }
  constexpr bool ready(int stage, Compute item) const {
    if (!inside(stage, item)) return true;
    if (item.work == Work::forward) return stage == 0 || produced(stage - 1, item);
    return produced(stage, {Work::forward, item.micro_batch}) && (stage + 1 == stages_ || produced(stage + 1, item));
  }
  constexpr std::size_t advance(bool push) {
    std::size_t advanced = 0;
    for (std::size_t s = 0; s < orders_.size(); ++s) {
      if (next_[s] == orders_[s].size()) continue;
      const Compute item = orders_[s][next_[s]];
      const int stage = static_cast<int>(s);
      if (!push && !ready(stage, item)) continue;
      if (inside(stage, item) && done_[place(stage, item)] == never) done_[place(stage, item)] = length_;
      when_[s].push_back(length_);
      ++next_[s];
      ++advanced;
    }
    return advanced;
  }

  const std::vector<std::vector<Compute>>& orders_;
  int stages_;
  int micro_batches_;
  int length_ = 0;
  std::vector<int> done_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<int>> when_;
};

constexpr void append_group(Table& table, std::vector<Action>& group) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].grouped_with_next = i + 1 < group.size();
    table.actions.push_back(group[i]);
  }
  group.clear();
}

}  // namespace detail

/// The tables of all stages for the given compute orders (one per stage).
///
/// The orders run in unit time (see `detail::UnitTime`). A message is exchanged in the phase that follows the time unit
/// before the one its consumer runs in, by both sides; all messages of one stage and phase form one group. Phases are
/// ordered alike on all stages, so no set of rendezvous waits can close a circle, and messages of one direction keep
/// one order. For one-forward-one-backward orders this gives the paired "send forward, receive backward" exchanges of
/// D. Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 2.2.
///
/// Orders that wait for each other, or leave something out, give tables that the judge refuses.
constexpr std::vector<Table> derive_communication(const std::vector<std::vector<Compute>>& orders, int micro_batches) {
  const detail::UnitTime time(orders, micro_batches);
  const std::size_t stages = orders.size();
  std::vector<Table> tables(stages);
  std::vector<std::vector<Action>> sends(stages), receives(stages);
  std::vector<std::size_t> next(stages, 0);
  // The phase before time unit 0 is empty unless an order begins with something that nobody has produced yet.
  for (int now = -1; now < time.length(); ++now) {
    for (std::size_t s = 0; s < stages; ++s) {
      const int stage = static_cast<int>(s);
      if (next[s] < orders[s].size() && time.when(s, next[s]) == now) {
        const Compute item = orders[s][next[s]++];
        const bool forward = item.work == Work::forward;
        tables[s].actions.push_back({forward ? ActionKind::forward : ActionKind::backward, item.micro_batch});
        // The consumer ran already: orders in a circle. The message goes out now; the judge will find it waited for.
        const int used = time.done(forward ? stage + 1 : stage - 1, item);
        if (used != detail::UnitTime::never && used <= now && time.done(stage, item) == now)
          sends[s].push_back({forward ? ActionKind::send_forward : ActionKind::send_backward, item.micro_batch});
      }
      if (next[s] < orders[s].size() && time.when(s, next[s]) == now + 1) {
        const Compute item = orders[s][next[s]];
        const bool forward = item.work == Work::forward;
        const int producer = forward ? stage - 1 : stage + 1;
        if (!time.inside(producer, item) || time.done(stage, item) != now + 1) continue;
        receives[s].push_back({forward ? ActionKind::receive_forward : ActionKind::receive_backward, item.micro_batch});
        const int produced = time.done(producer, item);
        if (produced != detail::UnitTime::never && produced <= now)
          sends[static_cast<std::size_t>(producer)].push_back(
              {forward ? ActionKind::send_forward : ActionKind::send_backward, item.micro_batch});
      }
    }
    for (std::size_t s = 0; s < stages; ++s) {
      for (const Action& receive : receives[s]) sends[s].push_back(receive);
      receives[s].clear();
      detail::append_group(tables[s], sends[s]);
    }
  }
  for (Table& table : tables) assign_slots(table);
  return tables;
}

}  // namespace dtrain::schedule
