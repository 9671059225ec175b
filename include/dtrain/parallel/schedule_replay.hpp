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
      : tables_(tables),
        cost_forward_(cost_forward),
        cost_backward_(cost_backward),
        channels_(4 * tables.size()),
        standing_(tables.size()) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < tables_.size(); ++stage)
        while (step(stage)) moved = true;
    }
  }

  /// Whether every stage reached the end of its table.
  [[nodiscard]] constexpr bool finished() const {
    for (std::size_t stage = 0; stage < tables_.size(); ++stage)
      if (!finished(static_cast<int>(stage))) return false;
    return true;
  }
  [[nodiscard]] constexpr bool finished(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    return standing_[s].row == tables_[s].actions.size();
  }
  /// The time a stage needed up to where it stands.
  [[nodiscard]] constexpr double clock(int stage) const { return standing_[static_cast<std::size_t>(stage)].clock; }
  /// When each computation of a stage began, in the order of its table.
  [[nodiscard]] constexpr const std::vector<double>& begins(int stage) const {
    return standing_[static_cast<std::size_t>(stage)].begins;
  }
  /// The first row of a standing stage whose partner has not come. Only for a stage that has not finished.
  [[nodiscard]] constexpr std::size_t waiting_row(int stage) const {
    const Standing& at = standing_[static_cast<std::size_t>(stage)];
    const auto& actions = tables_[static_cast<std::size_t>(stage)].actions;
    for (std::size_t i = 0; i < at.ordinals.size(); ++i)
      if (partner_times(actions[at.row + i].kind, stage).size() <= at.ordinals[i]) return at.row + i;
    return at.row;
  }

 private:
  struct Standing {
    std::size_t row = 0;
    double clock = 0;
    // For each row of the group that is posted now, how many rows of its direction were posted before it.
    std::vector<std::size_t> ordinals;
    std::vector<double> begins;
  };
  using Times = std::vector<double>;

  // Posting times, by the lower stage of a link, direction and end: 4 * stage + 2 * backward + receive.
  static constexpr std::size_t channel(ActionKind kind, int stage) {
    const int lower = std::min(stage, partner_of(kind, stage));
    const bool backward = kind == ActionKind::send_backward || kind == ActionKind::receive_backward;
    return 4 * static_cast<std::size_t>(lower) + (backward ? 2 : 0) + (is_receive(kind) ? 1 : 0);
  }
  constexpr const Times& partner_times(ActionKind kind, int stage) const {
    return channels_[channel(kind, stage) ^ std::size_t{1}];
  }

  constexpr bool step(std::size_t s) {
    const int stage = static_cast<int>(s);
    const auto& actions = tables_[s].actions;
    Standing& at = standing_[s];
    if (at.row == actions.size()) return false;
    if (is_compute(actions[at.row].kind)) {
      at.begins.push_back(at.clock);
      at.clock += actions[at.row].kind == ActionKind::forward ? cost_forward_ : cost_backward_;
      ++at.row;
      return true;
    }
    const std::size_t end = group_end(actions, at.row);
    if (at.ordinals.empty()) post(stage, at, end);
    double time = at.clock;
    for (std::size_t row = at.row; row < end; ++row) {
      const Times& times = partner_times(actions[row].kind, stage);
      const std::size_t ordinal = at.ordinals[row - at.row];
      if (times.size() <= ordinal) return false;
      time = std::max(time, times[ordinal]);
    }
    at.clock = time;
    at.row = end;
    at.ordinals.clear();
    return true;
  }

  constexpr void post(int stage, Standing& at, std::size_t end) {
    for (std::size_t row = at.row; row < end; ++row) {
      const ActionKind kind = tables_[static_cast<std::size_t>(stage)].actions[row].kind;
      const int partner = partner_of(kind, stage);
      if (partner == stage || partner < 0 || partner >= static_cast<int>(tables_.size()))
        throw ConfigurationError("dtrain: a table exchanges with a stage outside the pipeline, or computes in a group");
      Times& times = channels_[channel(kind, stage)];
      at.ordinals.push_back(times.size());
      times.push_back(at.clock);
    }
  }

  std::span<const Table> tables_;
  double cost_forward_;
  double cost_backward_;
  std::vector<Times> channels_;
  std::vector<Standing> standing_;
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
