// Plays the tables of all stages against each other, with every exchange a rendezvous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// Plays tables against each other: a computation takes its cost, an exchange takes no time but waits.
///
/// A group of communications is posted whole when its stage reaches it, and completes when, for each of its rows, the
/// partner has posted the group with the matching row. The n-th send of a direction between two stages matches the n-th
/// receive; micro-batch numbers play no part. Tables that wait in a circle, or for a message nobody sends, stand still:
/// `finished()` is then false and `waiting_row` tells where each stage stands.
class Replay {
 public:
  constexpr explicit Replay(std::span<const Table> tables, double cost_forward = 1.0, double cost_backward = 1.0)
      : cost_forward_(cost_forward), cost_backward_(cost_backward), stages_(static_cast<int>(tables.size())) {
    standing_.resize(tables.size());
    int rows = 0;
    for (std::size_t s = 0; s < tables.size(); ++s) {
      standing_[s].actions = tables[s].actions.data();
      standing_[s].rows = static_cast<int>(tables[s].actions.size());
      standing_[s].first = rows;
      rows += standing_[s].rows;
    }
    matches_.resize(static_cast<std::size_t>(rows), nobody);
    begins_.resize(static_cast<std::size_t>(rows), 0.0);
    pair_up();
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
  /// When a row that was reached began: for communications, when its group was posted.
  [[nodiscard]] constexpr double begin_of(int stage, int row) const {
    return begins_[static_cast<std::size_t>(at(stage).first + row)];
  }
  /// The first row of a standing stage whose partner has not come. Only for a stage that has not finished.
  [[nodiscard]] constexpr int waiting_row(int stage) const {
    const Standing& here = at(stage);
    for (int row = here.row; row < here.posted; ++row) {
      const int match = matches_[static_cast<std::size_t>(here.first + row)];
      if (match == nobody || match >= at(partner_of(here.actions[row].kind, stage)).posted) return row;
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

  constexpr const Standing& at(int stage) const { return standing_[static_cast<std::size_t>(stage)]; }

  // The n-th send of a direction matches the n-th receive.
  constexpr void pair_up() {
    for (int stage = 0; stage + 1 < stages_; ++stage) {
      pair_up(stage, ActionKind::send_forward, stage + 1, ActionKind::receive_forward);
      pair_up(stage + 1, ActionKind::send_backward, stage, ActionKind::receive_backward);
    }
  }
  constexpr void pair_up(int sender, ActionKind send, int receiver, ActionKind receive) {
    const Standing& from = at(sender);
    const Standing& to = at(receiver);
    int* const match = matches_.data();
    int there = 0;
    for (int here = 0; here < from.rows; ++here) {
      if (from.actions[here].kind != send) continue;
      while (there < to.rows && to.actions[there].kind != receive) ++there;
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

  // Takes one stage as far as it gets.
  constexpr void advance(int stage, Standing* standing) {
    Standing& here = standing[stage];
    const int* const match = matches_.data();
    double* const begin = begins_.data();
    while (here.row < here.rows) {
      const ActionKind kind = here.actions[here.row].kind;
      if (here.posted == here.row) {
        do {
          begin[here.first + here.posted] = here.clock;
        } while (here.actions[here.posted++].grouped_with_next && here.posted < here.rows);
        if (is_compute(kind)) {
          here.clock += kind == ActionKind::forward ? cost_forward_ : cost_backward_;
          here.row = here.posted;
          continue;
        }
        if (stage > 0) standing[stage - 1].woken = true;
        if (stage + 1 < stages_) standing[stage + 1].woken = true;
      }
      double time = here.clock;
      for (int row = here.row; row < here.posted; ++row) {
        const int other = match[here.first + row];
        if (other == nobody) return;
        const Standing& there = standing[partner_of(here.actions[row].kind, stage)];
        if (other >= there.posted) return;
        time = std::max(time, begin[there.first + other]);
      }
      here.clock = time;
      here.row = here.posted;
    }
  }

  double cost_forward_;
  double cost_backward_;
  int stages_;
  std::vector<Standing> standing_;
  std::vector<int> matches_;
  std::vector<double> begins_;
};

/// The idle share of the stages' time, 1 - busy / (stages x time of the slowest), when a forward and a backward cost
/// what is given on every stage and exchanges cost nothing. Throws ConfigurationError for tables that never finish.
constexpr double bubble_of(std::span<const Table> tables, double cost_forward = 1.0, double cost_backward = 2.0) {
  const Replay replay(tables, cost_forward, cost_backward);
  if (!replay.finished()) throw ConfigurationError("dtrain: tables that never finish have no bubble; judge them first");
  double busy = 0;
  double longest = 0;
  for (std::size_t s = 0; s < tables.size(); ++s) {
    for (const Action& action : tables[s].actions) {
      if (action.kind == ActionKind::forward) busy += cost_forward;
      if (action.kind == ActionKind::backward) busy += cost_backward;
    }
    longest = std::max(longest, replay.clock(static_cast<int>(s)));
  }
  return longest > 0 ? 1 - busy / (static_cast<double>(tables.size()) * longest) : 0;
}

}  // namespace dtrain::schedule
