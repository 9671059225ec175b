// An explanation as JSON, for programs: bytes by rank and kind, calls, and the rows of the schedule.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/json_text.hpp"
#include "dtrain/parallel/explanation.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_text.hpp"

namespace dtrain::parallel {

/// Bytes that one rank holds.
struct RankBytes {
  MemoryPlan program{};
  Index optimizer = 0;
  friend constexpr bool operator==(const RankBytes&, const RankBytes&) = default;
};

/// One rank: what was predicted, and what it allocated.
struct RankReport {
  int stage = 0;
  RankBytes predicted{};
  RankBytes allocated{};
};

namespace detail {

[[gnu::cold]] inline void add_bytes(JsonText& json, std::string_view key, const RankBytes& bytes) {
  const MemoryPlan& program = bytes.program;
  json.object(key)
      .add("parameters", program.parameters)
      .add("gradients", program.gradients)
      .add("optimizer", bytes.optimizer)
      .add("activations", program.activations)
      .add("logits", program.logits)
      .add("transient", program.transient)
      .add("gathered", program.gathered)
      .add("buckets", program.buckets)
      .add("constants", program.constants)
      .add("tokens", program.tokens)
      .add("total", program.total() + bytes.optimizer)
      .end();
}

[[gnu::cold]] inline void add_stage(JsonText& json, const StageReport& stage) {
  json.element().add("flops", stage.flops).add("parameters", stage.parameters).list("chunks");
  for (std::size_t c = 0; c < stage.units.size(); ++c)
    json.element()
        .add("first_unit", stage.units[c].begin)
        .add("units", stage.units[c].size())
        .add("recomputed_units", stage.recomputed[c])
        .add("in_flight", stage.chunks[c].in_flight)
        .add("activations_per_micro_batch", stage.chunks[c].activations)
        .add("logits_per_micro_batch", stage.chunks[c].logits)
        .end();
  json.end().list("communications");
  for (const Communication& call : stage.communications)
    json.element()
        .add("axis", call.axis)
        .add("collective", call.collective)
        .add("purpose", call.purpose)
        .add("calls", call.calls)
        .add("bytes", call.bytes)
        .end();
  json.end().end();
}

// The rows of every stage's table, with the time in which computations begin where all passes cost the same.
[[gnu::cold]] inline void add_schedule(JsonText& json, const Explanation& program) {
  const schedule::Replay replay(program.tables, {}, schedule::Waiting::at_use);
  json.object("schedule").add("name", program.schedule).add("bubble", program.bubble).list("stages");
  for (std::size_t s = 0; s < program.tables.size(); ++s) {
    json.element().list("rows");
    const auto& actions = program.tables[s].actions;
    for (std::size_t row = 0; row < actions.size(); ++row)
      json.element()
          .add("action", schedule::action_name(actions[row].kind))
          .add("micro_batch", actions[row].micro_batch)
          .add("chunk", actions[row].chunk)
          .add("slot", actions[row].slot)
          .add("begin", replay.begin_of(static_cast<int>(s), static_cast<int>(row)))
          .end();
    json.end().end();
  }
  json.end().end();
}

}  // namespace detail

/// The explanation and the bytes of every rank of the world, in the order of ranks, as one JSON object.
[[gnu::cold]] [[nodiscard]] inline std::string json_of(const Explanation& program, std::span<const RankReport> ranks) {
  JsonText json;
  json.add("strategy", program.strategy)
      .add("format", program.scalar)
      .add("ranks", program.ranks)
      .add("optimizer_states", program.optimizer_states)
      .add("whole_parameters", program.whole_parameters);
  json.object("batch")
      .add("samples", program.batch.samples)
      .add("context", program.batch.context)
      .add("micro_batches", program.batch.micro_batches)
      .add("shares", program.shares)
      .end();
  json.list("memory");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    json.element().add("rank", rank).add("stage", ranks[rank].stage);
    detail::add_bytes(json, "predicted", ranks[rank].predicted);
    detail::add_bytes(json, "allocated", ranks[rank].allocated);
    json.end();
  }
  json.end().list("stages");
  for (const StageReport& stage : program.stages) detail::add_stage(json, stage);
  json.end();
  detail::add_schedule(json, program);
  return json.finish();
}

}  // namespace dtrain::parallel
