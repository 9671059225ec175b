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

template <schedule::Schedule S>
void check_schedule_at(int stages, int micro_batches) {
  const auto fails = [&](auto... finding) {
    throw Error(concatenate(schedule::sentence_start(S::name, stages, micro_batches), finding...));
  };
  const std::vector<schedule::Table> tables = schedule::build_tables<S>(stages, micro_batches);
  if (tables != schedule::tables_of<S>(stages, micro_batches)) fails("gives other tables when it is asked again");
  for (std::size_t stage = 0; stage < tables.size(); ++stage) {
    int computations = 0;
    for (const schedule::Action& action : tables[stage].actions) computations += is_compute(action.kind) ? 1 : 0;
    if (computations != 2 * micro_batches)
      fails("computes ", computations, " times on stage ", stage, " instead of ", 2 * micro_batches);
  }
  // Whatever forward and backward cost, no stage works in less time than its work takes, and none waits for ever.
  for (const double cost_backward : {1.0, 2.0, 0.5}) {
    const double bubble = schedule::bubble_of(tables, 1.0, cost_backward);
    if (!(bubble >= -1e-12 && bubble < 1)) fails("is idle for a share of ", bubble, " of its time");
  }
  if constexpr (requires { S::bubble(stages, micro_batches); }) {
    const double promised = S::bubble(stages, micro_batches);
    const double measured = schedule::bubble_of(tables, 1.0, 1.0);
    if (std::abs(promised - measured) > 1e-12)
      fails("promises a bubble of ", promised, " and has one of ", measured, " when all computations cost the same");
  }
}

}  // namespace detail

/// Judges `S` for every number of stages up to `max_stages` and of micro-batches up to `max_micro_batches`, and checks
/// that its tables depend on the numbers alone, can be built in constant expressions, and keep the promise of
/// `S::bubble(stages, micro_batches)` where there is one. Throws Error with what fails and at which numbers.
template <class S>
void check_schedule(int max_stages = 8, int max_micro_batches = 16) {
  static_assert(schedule::Schedule<S>,
                "dtrain: a schedule is a type with static constexpr members name, in_flight(stage, stages, "
                "micro_batches) and either order(...) or plan(...)");
  [[maybe_unused]] constexpr schedule::Verdict constant = schedule::verdict_of<S, 2, 3>;
  for (int stages = 1; stages <= max_stages; ++stages)
    for (int micro_batches = 1; micro_batches <= max_micro_batches; ++micro_batches)
      detail::check_schedule_at<S>(stages, micro_batches);
}

}  // namespace dtrain::testing
