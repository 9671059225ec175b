// Plays the tables of all stages against each other, with every exchange a rendezvous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// What the computations of one chunk cost, in any unit; `backward` in one piece costs what its parts do.
struct Costs {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  /// Every computation of a whole pass costs the same.
  static constexpr Costs equal_passes() { return {1.0, 0.5, 0.5}; }
  [[nodiscard]] constexpr double of(ActionKind kind) const {
    switch (kind) {
      case ActionKind::forward:
        return forward;
      case ActionKind::backward:
        return backward_input + backward_weight;
      case ActionKind::backward_input:
        return backward_input;
      case ActionKind::backward_weight:
        return backward_weight;
      default:
        return 0.0;
    }
  }
};

/// When a stage waits for the messages it has posted. `in_groups`: for those of a group before its next row, the
/// strictest way, in which tables are judged. `at_use`: a computation waits for the value it reads, and for the last
/// value that was sent from where it writes, which is how a program runs them (`PendingMessages`). What finishes in
/// groups finishes at use: each wait is for a message of an earlier group, which in groups is over by then.
enum class Waiting : unsigned char { in_groups, at_use };

/// Plays tables against each other: a computation takes its cost, an exchange takes no time but waits.
///
/// A group of communications is posted whole when its stage reaches it, and completes when, for each of its rows, the
/// partner has posted the group with the matching row. The n-th send from one stage to another matches the n-th receive
/// there; passes, chunks and micro-batch numbers play no part. Tables that wait in a circle, or for a message nobody
/// sends, stand still: `finished()` is then false and `waiting_row` tells where each stage stands.
class Replay {
 public:
  constexpr explicit Replay(std::span<const Table> tables, const Costs& costs = {},
                            Waiting waiting = Waiting::in_groups)
      : costs_(costs), waiting_(waiting), stages_(static_cast<int>(tables.size())) {
    standing_.resize(tables.size());
    const VirtualPipeline pipeline = pipeline_of(tables);
    int rows = 0;
    for (std::size_t s = 0; s < tables.size(); ++s) {
      standing_[s].actions = tables[s].actions.data();
      standing_[s].rows = static_cast<int>(tables[s].actions.size());
      standing_[s].first = rows;
      rows += standing_[s].rows;
    }
    partners_.resize(static_cast<std::size_t>(rows), nobody);
    int* partner = partners_.data();
    for (int stage = 0; stage < stages_; ++stage)
      for (const Action& action : tables[static_cast<std::size_t>(stage)].actions)
        *partner++ = is_message(action.kind) ? partner_of(pipeline, action.kind, {stage, action.chunk}).stage : nobody;
    matches_.resize(static_cast<std::size_t>(rows), nobody);
    begins_.resize(static_cast<std::size_t>(rows), 0.0);
    pair_up();
    if (waiting == Waiting::at_use) {
      needs_.resize(static_cast<std::size_t>(rows));
      for (const Table& table : tables) find_needs(table, at(static_cast<int>(&table - tables.data())).first);
    }
    play();
  }

  /// Whether every stage reached the end of its table.
  [[nodiscard]] constexpr bool finished() const {
    for (int stage = 0; stage < stages_; ++stage)
      if (!finished(stage)) return false;
    return true;
  }
  [[nodiscard]] constexpr bool finished(int stage) const { return at(stage).row == at(stage).rows; }
  /// The time a stage needed up to where it stands.
  [[nodiscard]] constexpr double clock(int stage) const { return at(stage).clock; }
  /// When a row that was reached began: for communications, when they were posted.
  [[nodiscard]] constexpr double begin_of(int stage, int row) const {
    return begins_[static_cast<std::size_t>(at(stage).first + row)];
  }
  /// The first row of a standing stage whose partner has not come. Only for a stage that has not finished, and for
  /// waiting in groups.
  [[nodiscard]] constexpr int waiting_row(int stage) const {
    const Standing& here = at(stage);
    for (int row = here.row; row < here.posted; ++row) {
      const int match = matches_[static_cast<std::size_t>(here.first + row)];
      if (match == nobody || match >= at(partners_[static_cast<std::size_t>(here.first + row)]).posted) return row;
    }
    return here.row;
  }

 private:
  static constexpr int nobody = -1;

  struct Standing {
    const Action* actions = nullptr;
    int rows = 0;
    int first = 0;   // where the stage's rows lie in arrays over all rows
    int row = 0;     // the stage has completed the rows before this one
    int posted = 0;  // and has posted the rows before this one
    bool woken = true;
    double clock = 0;
  };

  // The messages that must be over before a computation begins: the value it reads, and the last one that was sent from
  // where it writes. Rows of the same stage.
  struct Needs {
    int received = nobody;
    int sent = nobody;
  };

  constexpr const Standing& at(int stage) const { return standing_[static_cast<std::size_t>(stage)]; }

  // Messages from one stage to another match in the order they are posted.
  constexpr void pair_up() {
    for (int stage = 0; stage < stages_; ++stage) {
      pair_up(stage, (stage + 1) % stages_);
      if (stages_ > 2) pair_up(stage, (stage + stages_ - 1) % stages_);
    }
  }
  constexpr void pair_up(int sender, int receiver) {
    const Standing& from = at(sender);
    const Standing& to = at(receiver);
    const int* const goes_to = partners_.data() + from.first;
    const int* const comes_from = partners_.data() + to.first;
    int* const match = matches_.data();
    int there = 0;
    for (int here = 0; here < from.rows; ++here) {
      if (goes_to[here] != receiver || !is_send(from.actions[here].kind)) continue;
      while (there < to.rows && (comes_from[there] != sender || !is_receive(to.actions[there].kind))) ++there;
      if (there == to.rows) return;
      match[from.first + here] = there;
      match[to.first + there] = here;
      ++there;
    }
  }

  // A stage is looked at again only after a neighbour has posted something.
  constexpr void play() {
    Standing* const standing = standing_.data();
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage) {
        if (!standing[stage].woken) continue;
        standing[stage].woken = false;
        moved = true;
        advance(stage, standing);
      }
    }
  }

  constexpr void find_needs(const Table& table, int first) {
    std::vector<int> first_slots(table.slots.size(), 0);  // of each chunk, where slots of all chunks are counted
    int slots = 0;
    for (std::size_t chunk = 0; chunk < table.slots.size(); ++chunk) {
      first_slots[chunk] = slots;
      slots += table.slots[chunk];
    }
    // Of each slot: the row that receives into it, or sends out of it, in the forward and in the backward pass.
    std::vector<Needs> messages(static_cast<std::size_t>(2 * slots));
    for (std::size_t row = 0; row < table.actions.size(); ++row) {
      const Action& action = table.actions[row];
      const int slot = first_slots[static_cast<std::size_t>(action.chunk)] + action.slot;
      const bool forward = action.kind == ActionKind::forward || action.kind == ActionKind::send_forward ||
                           action.kind == ActionKind::receive_forward;
      Needs& of_pass = messages[static_cast<std::size_t>(2 * slot + (forward ? 0 : 1))];
      if (is_receive(action.kind)) of_pass.received = static_cast<int>(row);
      if (is_send(action.kind)) of_pass.sent = static_cast<int>(row);
      if (is_compute(action.kind) && action.kind != ActionKind::backward_weight)
        needs_[static_cast<std::size_t>(first) + row] = std::exchange(of_pass, Needs{});
    }
  }
  // When the message of a row of `here` was over; less than 0 if its other side has not been posted.
  constexpr double over(const Standing& here, int row) const {
    const int other = matches_[static_cast<std::size_t>(here.first + row)];
    if (other == nobody) return -1;
    const Standing& there = at(partners_[static_cast<std::size_t>(here.first + row)]);
    return other < there.posted ? begins_[static_cast<std::size_t>(there.first + other)] : -1;
  }

  constexpr void advance_at_use(int stage, Standing* standing) {
    Standing& here = standing[stage];
    while (here.row < here.rows) {
      const ActionKind kind = here.actions[here.row].kind;
      const Needs& needs = needs_[static_cast<std::size_t>(here.first + here.row)];
      for (const int row : {needs.received, needs.sent}) {
        if (row == nobody) continue;
        const double time = over(here, row);
        if (time < 0) return;
        here.clock = std::max(here.clock, time);
      }
      begins_[static_cast<std::size_t>(here.first + here.row)] = here.clock;
      here.clock += costs_.of(kind);
      here.posted = ++here.row;
      if (!is_message(kind)) continue;
      standing[(stage + 1) % stages_].woken = true;
      standing[(stage + stages_ - 1) % stages_].woken = true;
    }
  }

  // Takes one stage as far as it gets.
  constexpr void advance(int stage, Standing* standing) {
    if (waiting_ == Waiting::at_use) return advance_at_use(stage, standing);
    Standing& here = standing[stage];
    const int* const match = matches_.data();
    double* const begin = begins_.data();
    while (here.row < here.rows) {
      const ActionKind kind = here.actions[here.row].kind;
      if (here.posted == here.row) {
        do {
          begin[here.first + here.posted] = here.clock;
        } while (here.actions[here.posted++].grouped_with_next && here.posted < here.rows);
        if (!is_message(kind)) {
          here.clock += costs_.of(kind);
          here.row = here.posted;
          continue;
        }
        standing[(stage + 1) % stages_].woken = true;
        standing[(stage + stages_ - 1) % stages_].woken = true;
      }
      double time = here.clock;
      for (int row = here.row; row < here.posted; ++row) {
        const int other = match[here.first + row];
        if (other == nobody) return;
        const Standing& there = standing[partners_[static_cast<std::size_t>(here.first + row)]];
        if (other >= there.posted) return;
        time = std::max(time, begin[there.first + other]);
      }
      here.clock = time;
      here.row = here.posted;
    }
  }

  Costs costs_;
  Waiting waiting_;
  int stages_;
  std::vector<Standing> standing_;
  std::vector<int> partners_;
  std::vector<int> matches_;
  std::vector<double> begins_;
  std::vector<Needs> needs_;
};

/// The idle share of the stages' time, 1 - busy / (stages x time of the slowest), when computations cost what is given
/// on every chunk, exchanges cost nothing and messages are waited for at use. Throws ConfigurationError for tables that
/// never finish.
constexpr double bubble_of(std::span<const Table> tables, const Costs& costs = {}) {
  const Replay replay(tables, costs, Waiting::at_use);
  if (!replay.finished()) throw ConfigurationError("dtrain: tables that never finish have no bubble; judge them first");
  double busy = 0;
  double longest = 0;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    for (const Action& action : tables[s].actions) busy += costs.of(action.kind);
    longest = std::max(longest, replay.clock(static_cast<int>(s)));
  }
  return longest > 0 ? 1 - busy / (static_cast<double>(tables.size()) * longest) : 0;
}
/// The same when a whole backward pass costs `cost_backward`, half of it for each of its parts.
constexpr double bubble_of(std::span<const Table> tables, double cost_forward, double cost_backward) {
  return bubble_of(tables, Costs{cost_forward, cost_backward / 2, cost_backward / 2});
}

}  // namespace dtrain::schedule
