// The words of a pipeline schedule: what a stage computes, what it exchanges, and what makes a type a schedule.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_placement.hpp"

namespace dtrain::schedule {

/// The computations of a chunk on one micro-batch. `backward` is both parts of the backward pass at once;
/// `backward_input` gives the gradient of the chunk's input, which the previous virtual stage waits for, and
/// `backward_weight` the gradients of its parameters, for which nobody waits.
enum class Work : unsigned char { forward, backward, backward_input, backward_weight };

/// One entry of a stage's compute order: one computation of one micro-batch on one of the stage's chunks.
struct Compute {
  Work work = Work::forward;
  int micro_batch = 0;
  int chunk = 0;
  friend constexpr bool operator==(const Compute&, const Compute&) = default;
};

/// What one row of a table does. `send_forward` gives the chunk's output to the next virtual stage, `receive_forward`
/// takes the chunk's input from the previous one; `send_backward` gives the gradient of the input to the previous
/// virtual stage, `receive_backward` takes the gradient of the output from the next one. Where the neighbour lies on
/// the same stage, the receiving chunk takes the value by `hand_forward` and `hand_backward`, and there is no message.
enum class ActionKind : unsigned char {
  forward,
  backward,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  backward_input,
  backward_weight,
  hand_forward,
  hand_backward
};
inline constexpr int action_kinds = 10;

/// One row of a stage's table.
struct Action {
  ActionKind kind = ActionKind::forward;
  /// Which micro-batch, counted from 0.
  int micro_batch = 0;
  /// Which of the chunk's activation arenas the micro-batch lives in, from its first row to its last.
  int slot = 0;
  /// A run of communications joined by this flag is posted as one group and completes as one.
  bool grouped_with_next = false;
  /// Which of the stage's chunks; of `hand_forward` and `hand_backward`, the one that takes.
  int chunk = 0;
  /// Of `hand_forward` and `hand_backward`: the slot of the giving chunk, which is `giving_chunk` of this row.
  int from_slot = 0;
  friend constexpr bool operator==(const Action&, const Action&) = default;
};

/// The program of one stage for one training step (or one evaluation pass).
///
/// A slot is held from the first row that concerns a micro-batch on a chunk to the last, `backward_weight` and both
/// sides of a hand-over included. A group may receive the input of the next micro-batch into the slot whose last
/// message it sends, so an interpreter keeps the four boundary arrays of a slot (input, output, gradient of the output,
/// gradient of the input) apart.
struct Table {
  std::vector<Action> actions{};
  /// For each chunk its number of activation arenas: the most micro-batches in flight on it at once.
  std::vector<int> slots{};
  Placement placement = Placement::looped;

  [[nodiscard]] constexpr int chunks() const { return slots.empty() ? 1 : static_cast<int>(slots.size()); }
  [[nodiscard]] constexpr int slots_of(int chunk) const {
    return chunk >= 0 && chunk < static_cast<int>(slots.size()) ? slots[static_cast<std::size_t>(chunk)] : 0;
  }
  friend constexpr bool operator==(const Table&, const Table&) = default;
};

/// A training step has both passes; evaluation runs forward alone.
enum class Pass : unsigned char { training, forward_only };

constexpr bool is_compute(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
constexpr bool is_message(ActionKind kind) { return is_send(kind) || is_receive(kind); }
constexpr bool is_hand(ActionKind kind) {
  return kind == ActionKind::hand_forward || kind == ActionKind::hand_backward;
}

/// The row that runs a computation.
constexpr ActionKind action_of(Work work) {
  switch (work) {
    case Work::forward:
      return ActionKind::forward;
    case Work::backward:
      return ActionKind::backward;
    case Work::backward_input:
      return ActionKind::backward_input;
    default:
      return ActionKind::backward_weight;
  }
}

/// The pipeline that the tables of all stages are for.
constexpr VirtualPipeline pipeline_of(std::span<const Table> tables) {
  VirtualPipeline pipeline{static_cast<int>(tables.size()), 1, Placement::looped};
  for (const Table& table : tables) {
    if (table.chunks() > pipeline.chunks) pipeline.chunks = table.chunks();
    if (table.placement != Placement::looped) pipeline.placement = table.placement;
  }
  return pipeline;
}

/// The chunk that a message of `here` is exchanged with, or that a hand-over takes from; `here` itself for
/// computations. Its stage is -1 where the pipeline has no such neighbour.
constexpr Place partner_of(const VirtualPipeline& pipeline, ActionKind kind, Place here) {
  switch (kind) {
    case ActionKind::send_forward:
    case ActionKind::receive_backward:
    case ActionKind::hand_backward:
      return pipeline.place(pipeline.virtual_stage(here) + 1);
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::hand_forward:
      return pipeline.place(pipeline.virtual_stage(here) - 1);
    default:
      return here;
  }
}

/// The chunk of the same stage that a hand-over takes from: virtual stages that meet on a stage are neighbours.
constexpr int giving_chunk(const Action& hand) {
  return hand.kind == ActionKind::hand_forward ? hand.chunk - 1 : hand.chunk + 1;
}

/// One past the last row of the group that begins at row `begin`; a computation is a group of its own.
constexpr std::size_t group_end(const std::vector<Action>& actions, std::size_t begin) {
  std::size_t end = begin;
  while (end + 1 < actions.size() && actions[end].grouped_with_next) ++end;
  return end + 1;
}

/// A schedule whose functions take the number of chunks as a fourth argument; the strategy chooses it.
template <class S>
concept TakesChunks = requires(int number) {
  { S::in_flight(number, number, number, number) } -> std::same_as<int>;
};

namespace detail {
template <class S>
constexpr int own_chunks() {
  if constexpr (requires { S::chunks; })
    return S::chunks;
  else
    return 1;
}
template <class S>
constexpr Placement own_placement() {
  if constexpr (requires { S::placement; })
    return S::placement;
  else
    return Placement::looped;
}
}  // namespace detail

/// How many chunks each stage of `S` holds where nothing else is said: its `chunks`, or 1.
template <class S>
inline constexpr int own_chunks = detail::own_chunks<S>();
/// How `S` deals out its virtual stages: its `placement`, or looped.
template <class S>
inline constexpr Placement own_placement = detail::own_placement<S>();

/// A schedule that says in which order a stage computes, and leaves the communication to the library.
///
/// `order(stage, stages, micro_batches)` lists, for each chunk of the stage, each micro-batch once forward and once
/// backward, the latter in one piece or in two; `in_flight(stage, stages, micro_batches)` is the number of activation
/// arenas the stage may use at once, those of all its chunks together. A schedule for any number of chunks takes that
/// number as the fourth argument of both.
template <class S>
concept OrderedSchedule = requires(int number) {
  { S::name } -> std::convertible_to<std::string_view>;
} && (requires(int number) {
  { S::order(number, number, number) } -> std::same_as<std::vector<Compute>>;
  { S::in_flight(number, number, number) } -> std::same_as<int>;
} || requires(int number) {
  { S::order(number, number, number, number) } -> std::same_as<std::vector<Compute>>;
  { S::in_flight(number, number, number, number) } -> std::same_as<int>;
});

/// A schedule that writes its own tables, sends and receives included.
template <class S>
concept PlannedSchedule = requires(int number) {
  { S::name } -> std::convertible_to<std::string_view>;
} && (requires(int number) {
  { S::plan(number, number, number) } -> std::same_as<Table>;
  { S::in_flight(number, number, number) } -> std::same_as<int>;
} || requires(int number) {
  { S::plan(number, number, number, number) } -> std::same_as<Table>;
  { S::in_flight(number, number, number, number) } -> std::same_as<int>;
});

/// A type with a `name`, a bound `in_flight`, and either a compute `order` or a whole `plan`, all constexpr and static;
/// beside them `chunks`, if each stage holds more than one, and a `placement`, if they are not looped.
template <class S>
concept Schedule = OrderedSchedule<S> || PlannedSchedule<S>;

}  // namespace dtrain::schedule
