// From a schedule type to judged tables: concepts for the compiler, `build_tables` for start-up.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_derivation.hpp"
#include "dtrain/parallel/schedule_judge.hpp"
#include "dtrain/parallel/schedule_text.hpp"
#include "dtrain/parallel/schedules/forward_only.hpp"

namespace dtrain::schedule {

/// The tables of all stages, not judged yet. A schedule that has both a plan and an order is taken by its plan.
template <Schedule S>
constexpr std::vector<Table> tables_of(int stages, int micro_batches, int chunks = own_chunks<S>) {
  if constexpr (PlannedSchedule<S>) {
    std::vector<Table> tables;
    for (int stage = 0; stage < stages; ++stage) {
      if constexpr (TakesChunks<S>)
        tables.push_back(S::plan(stage, stages, micro_batches, chunks));
      else
        tables.push_back(S::plan(stage, stages, micro_batches));
      Table& table = tables.back();
      table.placement = own_placement<S>;
      if (table.chunks() < chunks) table.slots.resize(static_cast<std::size_t>(chunks), 0);
    }
    return tables;
  } else {
    std::vector<std::vector<Compute>> orders;
    for (int stage = 0; stage < stages; ++stage) {
      if constexpr (TakesChunks<S>)
        orders.push_back(S::order(stage, stages, micro_batches, chunks));
      else
        orders.push_back(S::order(stage, stages, micro_batches));
    }
    return derive_communication(orders, micro_batches, chunks, own_placement<S>);
  }
}

/// The most micro-batches that a stage may hold at once, counted on each of its chunks.
template <Schedule S>
constexpr int in_flight_limit(int stage, int stages, int micro_batches, [[maybe_unused]] int chunks = own_chunks<S>) {
  if constexpr (TakesChunks<S>)
    return S::in_flight(stage, stages, micro_batches, chunks);
  else
    return S::in_flight(stage, stages, micro_batches);
}

namespace detail {
template <class S>
constexpr bool splits_backward_pass(int stages, int chunks) {
  if constexpr (requires { S::splits_backward; }) {
    return S::splits_backward;
  } else if constexpr (Schedule<S>) {
    for (const Table& table : tables_of<S>(stages, stages, chunks))
      for (const Action& action : table.actions)
        if (action.kind == ActionKind::backward_input) return true;
    return false;
  } else {
    return false;
  }
}
}  // namespace detail

/// Whether `S` runs the backward passes of inputs and of weights apart: what it says as `splits_backward`, or else what
/// its tables for `Stages` stages do.
template <class S, int Stages, int Chunks = own_chunks<S>>
inline constexpr bool splits_backward_pass = detail::splits_backward_pass<S>(Stages, Chunks);

/// Judges given tables by the in-flight limits that `S` declares.
template <Schedule S>
constexpr Verdict judge_tables(const std::vector<Table>& tables, int micro_batches, int chunks = own_chunks<S>) {
  std::vector<int> limits;
  const int stages = static_cast<int>(tables.size());
  for (int stage = 0; stage < stages; ++stage)
    limits.push_back(in_flight_limit<S>(stage, stages, micro_batches, chunks));
  return judge(tables, micro_batches, limits);
}

namespace detail {
// A type that is no schedule has nothing to judge; `RequireSound` says so in a sentence of its own.
template <class S>
constexpr Verdict verdict(int stages, int micro_batches, int chunks) {
  if constexpr (Schedule<S>)
    return judge_tables<S>(tables_of<S>(stages, micro_batches, chunks), micro_batches, chunks);
  else
    return {};
}
}  // namespace detail

/// What the judge says of `S` at the given numbers.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
inline constexpr Verdict verdict_of = detail::verdict<S>(Stages, MicroBatches, Chunks);

/// Rows name only micro-batches, chunks, slots and neighbours that exist; groups hold only messages.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept WellFormed = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::malformed;
/// Every chunk of every stage runs each micro-batch once forward and then once backward.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept ForwardMatchesBackward =
    verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::forward_backward_mismatch;
/// Every send has exactly one receive and every receive exactly one send.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept EverySendReceived = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::unmatched_message;
/// Two stages send and receive their messages in the same order, whatever passes and chunks they belong to.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept SameMessageOrder = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::message_order;
/// Nothing is computed before its input came, nothing sent before it was computed.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept ArrivesBeforeUse = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::use_before_arrival;
/// No stage holds more micro-batches than `in_flight` declares.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept WithinInFlightLimit = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::in_flight_above_limit;
/// No living micro-batch is overwritten.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept SlotsKept = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::slot_overwritten;
/// No stages wait for each other in a circle when a send waits for its receive.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept FreeOfDeadlock = verdict_of<S, Stages, MicroBatches, Chunks>.failure != Failure::deadlock;

/// All of the above: the schedule can be run at these numbers.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
concept SoundFor =
    Schedule<S> && WellFormed<S, Stages, MicroBatches, Chunks> &&
    ForwardMatchesBackward<S, Stages, MicroBatches, Chunks> && EverySendReceived<S, Stages, MicroBatches, Chunks> &&
    SameMessageOrder<S, Stages, MicroBatches, Chunks> && ArrivesBeforeUse<S, Stages, MicroBatches, Chunks> &&
    WithinInFlightLimit<S, Stages, MicroBatches, Chunks> && SlotsKept<S, Stages, MicroBatches, Chunks> &&
    FreeOfDeadlock<S, Stages, MicroBatches, Chunks>;

namespace detail {
/// The first of the given numbers of micro-batches that the judge refuses; 0 if none.
template <class S, int Stages, int Chunks, int MicroBatches, int... More>
constexpr int first_refused() {
  if constexpr (!verdict_of<S, Stages, MicroBatches, Chunks>.ok())
    return MicroBatches;
  else if constexpr (sizeof...(More) > 0)
    return first_refused<S, Stages, Chunks, More...>();
  else
    return 0;
}
/// Fewer micro-batches than stages, as many, and more than twice as many: everything between repeats their phases, and
/// the number of a real run is judged by `build_tables`. Four numbers, since each costs compile time.
template <class S, int Stages, int Chunks>
inline constexpr int refused_micro_batches = first_refused<S, Stages, Chunks, 1, 2, Stages, 2 * Stages + 1>();
}  // namespace detail

/// Whether the judge accepts `S` on `Stages` stages for 1, 2, `Stages` and 2 x `Stages` + 1 micro-batches.
template <class S, int Stages, int Chunks = own_chunks<S>>
constexpr bool sound() {
  return Schedule<S> && detail::refused_micro_batches<S, Stages, Chunks> == 0;
}

/// The entry for whoever takes a schedule as a type: `static_assert(RequireSound<S, 4, 8>::value)` says in one sentence
/// what is wrong with `S` at exactly these numbers.
template <class S, int Stages, int MicroBatches, int Chunks = own_chunks<S>>
struct RequireSound {
  static_assert(Schedule<S>,
                "dtrain: a schedule is a type with static constexpr members name, in_flight(stage, stages, "
                "micro_batches) and either order(...) or plan(...)");
  static_assert(
      WellFormed<S, Stages, MicroBatches, Chunks>,
      "dtrain: the schedule has a row that names a micro-batch, chunk, slot or neighbour that does not exist");
  static_assert(ForwardMatchesBackward<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule does not run every micro-batch once forward and then once backward");
  static_assert(EverySendReceived<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule has a send without its receive, or a receive without its send");
  static_assert(SameMessageOrder<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule receives messages in another order than they are sent");
  static_assert(ArrivesBeforeUse<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule computes or sends a micro-batch before its data is there");
  static_assert(WithinInFlightLimit<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule holds more micro-batches in flight than it declares");
  static_assert(SlotsKept<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule overwrites the slot of a micro-batch that still needs it");
  static_assert(FreeOfDeadlock<S, Stages, MicroBatches, Chunks>,
                "dtrain: the schedule deadlocks when a send waits for its receive");
  static constexpr bool value = true;
};

/// The same for every number of micro-batches that `sound` tries; the sentence names the smallest that fails.
template <class S, int Stages, int Chunks = own_chunks<S>>
struct RequireSoundSchedule {
  static constexpr int refused = detail::refused_micro_batches<S, Stages, Chunks>;
  static constexpr int judged = refused == 0 ? 1 : refused;
  static constexpr bool value = RequireSound<S, Stages, judged, Chunks>::value;
};

namespace detail {
[[gnu::cold]] inline void check_counts(std::string_view name, int stages, int micro_batches, int chunks) {
  if (stages < 1 || micro_batches < 1)
    throw ConfigurationError(concatenate("dtrain: schedule ", name,
                                         " needs at least one stage and one micro-batch, not ", stages, " and ",
                                         micro_batches));
  if (chunks < 1)
    throw ConfigurationError(
        concatenate("dtrain: schedule ", name, " needs at least one chunk per stage, not ", chunks));
}
}  // namespace detail

/// The judged tables of all stages. Throws ConfigurationError with the judge's sentence if the schedule is refused.
template <Schedule S>
[[gnu::cold]] std::vector<Table> build_tables(int stages, int micro_batches, int chunks = own_chunks<S>) {
  detail::check_counts(S::name, stages, micro_batches, chunks);
  if (!TakesChunks<S> && chunks != own_chunks<S>)
    throw ConfigurationError(concatenate("dtrain: schedule ", std::string_view(S::name), " is made for ", own_chunks<S>,
                                         " chunks per stage, not ", chunks));
  std::vector<Table> tables = tables_of<S>(stages, micro_batches, chunks);
  const Verdict verdict = judge_tables<S>(tables, micro_batches, chunks);
  if (!verdict.ok()) throw ConfigurationError(describe(verdict, S::name));
  return tables;
}

/// The judged tables of all stages for a pass without gradients, such as evaluation.
[[gnu::cold]] inline std::vector<Table> build_forward_only_tables(int stages, int micro_batches, int chunks = 1,
                                                                  Placement placement = Placement::looped) {
  detail::check_counts("forward-only", stages, micro_batches, chunks);
  std::vector<Table> tables = forward_only_tables(stages, micro_batches, chunks, placement);
  const std::vector<int> limits(static_cast<std::size_t>(stages), chunks);
  const Verdict verdict = judge(tables, micro_batches, limits, Pass::forward_only);
  if (!verdict.ok()) throw ConfigurationError(describe(verdict, "forward-only"));
  return tables;
}

}  // namespace dtrain::schedule
