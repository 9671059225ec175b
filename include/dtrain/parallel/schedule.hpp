// The words of a pipeline schedule: what a stage computes, what it exchanges, and what makes a type a schedule.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <vector>

namespace dtrain::schedule {

/// The two computations of a stage on one micro-batch.
enum class Work : unsigned char { forward, backward };

/// One entry of a stage's compute order: forward or backward of one micro-batch.
struct Compute {
  Work work = Work::forward;
  int micro_batch = 0;
  friend constexpr bool operator==(const Compute&, const Compute&) = default;
};

/// What one row of a table does. `send_forward` gives the stage's output to the next stage, `receive_forward` takes the
/// stage's input from the previous one; `send_backward` gives the gradient of the input to the previous stage,
/// `receive_backward` takes the gradient of the output from the next one.
enum class ActionKind : unsigned char {
  forward,
  backward,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward
};

/// One row of a stage's table.
struct Action {
  ActionKind kind = ActionKind::forward;
  /// Which micro-batch, counted from 0.
  int micro_batch = 0;
  /// Which of the stage's activation arenas the micro-batch lives in, from its first row to its last.
  int slot = 0;
  /// A run of communications joined by this flag is posted as one group and completes as one.
  bool grouped_with_next = false;
  friend constexpr bool operator==(const Action&, const Action&) = default;
};

/// The program of one stage for one training step (or one evaluation pass).
///
/// A slot is held from the first row of a micro-batch to its last. A group may receive the input of the next
/// micro-batch into the slot whose last message it sends, so an interpreter keeps the four boundary arrays of a slot
/// (input, output, gradient of the output, gradient of the input) apart.
struct Table {
  std::vector<Action> actions;
  /// Number of activation arenas: the most micro-batches in flight on this stage at once.
  int slots = 0;
  friend constexpr bool operator==(const Table&, const Table&) = default;
};

/// A training step has both passes; evaluation runs forward alone.
enum class Pass : unsigned char { training, forward_only };

constexpr bool is_compute(ActionKind kind) { return kind == ActionKind::forward || kind == ActionKind::backward; }
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

/// The stage a communication of `stage` is exchanged with; `stage` itself for computations. May lie outside the
/// pipeline when the table is wrong.
constexpr int partner_of(ActionKind kind, int stage) {
  switch (kind) {
    case ActionKind::send_forward:
    case ActionKind::receive_backward:
      return stage + 1;
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
      return stage - 1;
    default:
      return stage;
  }
}

/// One past the last row of the group that begins at row `begin`; a computation is a group of its own.
constexpr std::size_t group_end(const std::vector<Action>& actions, std::size_t begin) {
  std::size_t end = begin;
  while (end + 1 < actions.size() && actions[end].grouped_with_next) ++end;
  return end + 1;
}

/// Gives every micro-batch the lowest slot that is free while it lives, and sets the number of slots.
/// A micro-batch lives from its first row to its last; rows of one group happen together, so that a slot whose last
/// message is sent by a group may be received into by the same group. Rows with a negative micro-batch are left alone.
constexpr void assign_slots(Table& table) {
  constexpr int free = -1;
  Action* const actions = table.actions.data();
  const std::size_t rows = table.actions.size();
  int micro_batches = 0;
  for (std::size_t row = 0; row < rows; ++row)
    if (actions[row].micro_batch >= micro_batches) micro_batches = actions[row].micro_batch + 1;
  std::vector<std::size_t> last_rows(static_cast<std::size_t>(micro_batches), 0);
  std::vector<int> homes(static_cast<std::size_t>(micro_batches), free);
  std::vector<int> occupants(static_cast<std::size_t>(micro_batches), free);
  std::size_t* const last = last_rows.data();
  int* const home = homes.data();
  int* const occupant = occupants.data();
  for (std::size_t row = 0; row < rows; ++row)
    if (actions[row].micro_batch >= 0) last[actions[row].micro_batch] = row;

  table.slots = 0;
  for (std::size_t begin = 0, end = 0; begin < rows; begin = end) {
    for (end = begin; end + 1 < rows && actions[end].grouped_with_next;) ++end;
    ++end;
    const bool exchange = !is_compute(actions[begin].kind);
    const auto leave = [&](std::size_t row) {
      const int k = actions[row].micro_batch;
      if (k >= 0 && last[k] == row && home[k] != free) occupant[home[k]] = free;
    };
    // Messages leave before others take their slots; a computation ends after it began.
    for (std::size_t row = begin; exchange && row < end; ++row) leave(row);
    for (std::size_t row = begin; row < end; ++row) {
      const int k = actions[row].micro_batch;
      if (k < 0) continue;
      if (home[k] == free) {
        int slot = 0;
        while (occupant[slot] != free) ++slot;
        occupant[slot] = k;
        home[k] = slot;
        if (slot >= table.slots) table.slots = slot + 1;
      }
      actions[row].slot = home[k];
    }
    if (!exchange) leave(begin);
  }
}

/// A schedule that says in which order a stage computes, and leaves the communication to the library.
///
/// `order(stage, stages, micro_batches)` lists each micro-batch once forward and once backward;
/// `in_flight(stage, stages, micro_batches)` is the number of activation arenas the stage may use.
template <class S>
concept OrderedSchedule = requires(int number) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::order(number, number, number) } -> std::same_as<std::vector<Compute>>;
  { S::in_flight(number, number, number) } -> std::same_as<int>;
};

/// A schedule that writes its own tables, sends and receives included.
template <class S>
concept PlannedSchedule = requires(int number) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::plan(number, number, number) } -> std::same_as<Table>;
  { S::in_flight(number, number, number) } -> std::same_as<int>;
};

/// A type with a `name`, a bound `in_flight`, and either a compute `order` or a whole `plan`, all constexpr and static.
template <class S>
concept Schedule = OrderedSchedule<S> || PlannedSchedule<S>;

}  // namespace dtrain::schedule
