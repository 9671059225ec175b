// The conformance suite of pipeline schedules: what every schedule must do, the library's and a user's own.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedule_text.hpp"

namespace dtrain::testing {

namespace detail {

// Whatever the parts cost, no stage works in less time than its work takes, and none waits for ever.
inline constexpr schedule::Costs tried_costs[] = {{1, 1, 1}, {1, 0.5, 0.5}, {1, 0.25, 0.25}, {1, 2, 0.5}};

template <schedule::Schedule S>
[[gnu::cold]] void check_schedule_at(int stages, int micro_batches, int chunks) {
  const auto fails = [&](auto... finding) {
    throw Error(concatenate(schedule::sentence_start(S::name, stages, micro_batches, chunks), finding...));
  };
  const std::vector<schedule::Table> tables = schedule::build_tables<S>(stages, micro_batches, chunks);
  if (tables != schedule::tables_of<S>(stages, micro_batches, chunks))
    fails("gives other tables when it is asked again");
  for (std::size_t stage = 0; stage < tables.size(); ++stage) {
    int passes = 0;  // a backward in two parts counts once
    for (const schedule::Action& action : tables[stage].actions)
      passes += is_compute(action.kind) && action.kind != schedule::ActionKind::backward_weight ? 1 : 0;
    if (passes != 2 * micro_batches * chunks)
      fails("computes ", passes, " passes on stage ", stage, " instead of ", 2 * micro_batches * chunks);
  }
  for (const schedule::Costs& costs : tried_costs) {
    const double bubble = schedule::bubble_of(tables, costs);
    if (!(bubble >= -1e-12 && bubble < 1)) fails("is idle for a share of ", bubble, " of its time");
  }
  double promised = -1;
  if constexpr (requires { S::bubble(stages, micro_batches, chunks); })
    promised = S::bubble(stages, micro_batches, chunks);
  else if constexpr (requires { S::bubble(stages, micro_batches); })
    promised = S::bubble(stages, micro_batches);
  if (promised >= 0) {
    // Schedules that part the backward pass promise their bubble for equal parts, others for equal passes.
    const bool parts = schedule::detail::splits_backward(tables);
    const double measured = schedule::bubble_of(tables, parts ? schedule::Costs{} : schedule::Costs::equal_passes());
    if (std::abs(promised - measured) > 1e-12)
      fails("promises a bubble of ", promised, " and has one of ", measured, " when all computations cost the same");
  }
}

}  // namespace detail

/// Judges `S` for every number of stages up to `max_stages`, of micro-batches up to `max_micro_batches`, and, where the
/// strategy chooses it, of chunks up to `max_chunks`, and checks that its tables depend on the numbers alone, can be
/// built in constant expressions, and keep the promise of `S::bubble(stages, micro_batches)` (or `bubble(stages,
/// micro_batches, chunks)`) where there is one. Throws Error with what fails and at which numbers.
template <class S>
void check_schedule(int max_stages = 8, int max_micro_batches = 16, int max_chunks = 4) {
  static_assert(schedule::Schedule<S>,
                "dtrain: a schedule is a type with static constexpr members name, in_flight(stage, stages, "
                "micro_batches) and either order(...) or plan(...)");
  [[maybe_unused]] constexpr schedule::Verdict constant = schedule::verdict_of<S, 2, 3>;
  const int own = schedule::own_chunks<S>;
  const int most = schedule::TakesChunks<S> ? max_chunks : own;
  for (int chunks = own; chunks <= most; ++chunks)
    for (int stages = 1; stages <= max_stages; ++stages)
      for (int micro_batches = 1; micro_batches <= max_micro_batches; ++micro_batches)
        detail::check_schedule_at<S>(stages, micro_batches, chunks);
}

}  // namespace dtrain::testing
