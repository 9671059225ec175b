// Compute orders as values: a schedule that is known when the program starts, not when it compiles.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_derivation.hpp"
#include "dtrain/parallel/schedule_judge.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedule_text.hpp"

namespace dtrain::schedule {

/// What every stage computes, in which order.
struct Orders {
  /// What sentences call it.
  std::string name{};
  /// One order per stage.
  std::vector<std::vector<Compute>> of_stages{};
  int micro_batches = 0;
  int chunks = 1;
  Placement placement = Placement::looped;

  [[nodiscard]] VirtualPipeline pipeline() const { return {static_cast<int>(of_stages.size()), chunks, placement}; }
};

/// The orders of `S` for the given numbers. Its type gives orders, not plans.
template <OrderedSchedule S>
[[nodiscard, gnu::cold]] Orders orders_of(int stages, int micro_batches, int chunks = own_chunks<S>) {
  Orders orders{.name = std::string(std::string_view(S::name)),
                .micro_batches = micro_batches,
                .chunks = chunks,
                .placement = own_placement<S>};
  for (int stage = 0; stage < stages; ++stage) {
    if constexpr (TakesChunks<S>)
      orders.of_stages.push_back(S::order(stage, stages, micro_batches, chunks));
    else
      orders.of_stages.push_back(S::order(stage, stages, micro_batches));
  }
  return orders;
}

/// The tables of all stages, with their communication derived, judged. `limits` holds, per stage, how many
/// micro-batches may be in flight, counted on each chunk; without it a stage may hold as many as its order asks for.
/// Throws ConfigurationError with the judge's sentence if the orders are refused.
[[nodiscard, gnu::cold]] inline std::vector<Table> judged_tables(const Orders& orders,
                                                                 std::span<const int> limits = {}) {
  const VirtualPipeline pipeline = orders.pipeline();
  detail::check_counts(orders.name, pipeline.stages, orders.micro_batches, orders.chunks);
  if (!limits.empty() && limits.size() != orders.of_stages.size())
    throw ConfigurationError(concatenate("dtrain: schedule ", orders.name, " has ", pipeline.stages,
                                         " stages, but limits for ", limits.size()));
  std::vector<Table> tables =
      derive_communication(orders.of_stages, orders.micro_batches, orders.chunks, orders.placement);
  const std::vector<int> enough(limits.empty() ? tables.size() : 0, orders.micro_batches * orders.chunks);
  const Verdict verdict = judge(tables, orders.micro_batches, limits.empty() ? std::span(enough) : limits);
  if (!verdict.ok()) throw ConfigurationError(describe(verdict, orders.name));
  return tables;
}

namespace detail {
[[gnu::cold]] inline std::string numbers_text(const VirtualPipeline& pipeline, int micro_batches) {
  return concatenate(pipeline.stages, " stages of ", pipeline.chunks, " chunks (",
                     pipeline.placement == Placement::v_shaped ? "in a V" : "looped", ") and ", micro_batches,
                     " micro-batches");
}
}  // namespace detail

/// The same for a program that is made for `pipeline` and runs `micro_batches` micro-batches. Throws ConfigurationError
/// where the orders are for other numbers.
[[nodiscard, gnu::cold]] inline std::vector<Table> judged_tables(const Orders& orders, const VirtualPipeline& pipeline,
                                                                 int micro_batches) {
  VirtualPipeline own = orders.pipeline();
  if (own.stages == 1) own.placement = pipeline.placement;  // loops and V are the same there
  if (!(own == pipeline) || orders.micro_batches != micro_batches)
    throw ConfigurationError(concatenate("dtrain: schedule ", orders.name, " is made for ",
                                         detail::numbers_text(orders.pipeline(), orders.micro_batches),
                                         "; the program runs ", detail::numbers_text(pipeline, micro_batches)));
  return judged_tables(orders);
}

}  // namespace dtrain::schedule
