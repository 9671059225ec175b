#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "dtrain/parallel/policies.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "dtrain/testing/schedule_conformance.hpp"

using namespace dtrain::schedule;

namespace {

/// All forwards, then all backwards in the opposite order: the simplest schedule for several chunks.
template <Placement Lay, bool Parts>
struct ThereAndBack {
  static constexpr std::string_view name = "ThereAndBack";
  static constexpr Placement placement = Lay;

  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches, int chunks) {
    std::vector<Compute> items = forward_only_order({stages, chunks, Lay}, stage, micro_batches);
    for (std::size_t i = items.size(); i-- > 0;) {
      const Compute item = items[i];
      items.push_back({Parts ? Work::backward_input : Work::backward, item.micro_batch, item.chunk});
    }
    for (int k = 0; Parts && k < micro_batches; ++k)
      for (int chunk = 0; chunk < chunks; ++chunk) items.push_back({Work::backward_weight, k, chunk});
    return items;
  }
  static constexpr int in_flight(int, int, int micro_batches, int chunks) { return micro_batches * chunks; }
};
template <bool Parts>
struct VShaped : ThereAndBack<Placement::v_shaped, Parts> {
  static constexpr int chunks = 2;
  static constexpr std::vector<Compute> order(int stage, int stages, int micro_batches) {
    return ThereAndBack<Placement::v_shaped, Parts>::order(stage, stages, micro_batches, 2);
  }
  static constexpr int in_flight(int, int, int micro_batches) { return 2 * micro_batches; }
};

/// The time that all stages wait together, divided by their number.
double idle_of(const std::vector<Table>& tables, const Costs& costs) {
  double busy = 0;
  for (const Action& action : tables[0].actions) busy += costs.of(action.kind);
  const double bubble = bubble_of(tables, costs);
  return bubble * busy / (1 - bubble);
}

/// Forwards equal backwards on each chunk, the running sum is never negative and ends at zero, nothing is missing.
template <class S>
void check_invariants(int stages, int micro_batches, int chunks) {
  const std::vector<Table> tables = build_tables<S>(stages, micro_batches, chunks);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> alive(static_cast<std::size_t>(chunks)), passes = alive;
    int together = 0, most = 0, weights = 0, inputs = 0;
    for (const Action& action : tables[static_cast<std::size_t>(stage)].actions) {
      const auto chunk = static_cast<std::size_t>(action.chunk);
      const bool splits = action.kind == ActionKind::backward_input;
      if (action.kind == ActionKind::forward) ++alive[chunk], ++together;
      if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) --alive[chunk], --together;
      inputs += splits ? 1 : 0;
      weights += action.kind == ActionKind::backward_weight ? 1 : 0;
      if (is_compute(action.kind) && action.kind != ActionKind::backward_weight) ++passes[chunk];
      REQUIRE(alive[chunk] >= 0);
      REQUIRE(weights <= inputs);
      most = std::max(most, together);
    }
    REQUIRE(alive == std::vector<int>(alive.size(), 0));
    REQUIRE(passes == std::vector<int>(passes.size(), 2 * micro_batches));
    REQUIRE(weights == inputs);
    // ZB-V needs less when there are too few micro-batches to fill it.
    const int limit = in_flight_limit<S>(stage, stages, micro_batches, chunks);
    REQUIRE(
        (most == limit || (most < limit && own_placement<S> == Placement::v_shaped && micro_batches < 2 * stages - 1)));
  }
}

}  // namespace

TEST_CASE("virtual stages lie in loops or in a V") {
  constexpr VirtualPipeline loops{4, 3, Placement::looped};
  static_assert(loops.virtual_stages() == 12 && loops.place(6) == Place{2, 1} && loops.place(12).stage == -1);
  constexpr VirtualPipeline v{4, 2, Placement::v_shaped};
  static_assert(v.place(3) == Place{3, 0} && v.place(4) == Place{3, 1} && v.place(7) == Place{0, 1});
  for (const VirtualPipeline& pipeline : {loops, v})
    for (int number = 0; number < pipeline.virtual_stages(); ++number)
      CHECK(pipeline.virtual_stage(pipeline.place(number)) == number);
  static_assert(partner_of(loops, ActionKind::send_forward, {3, 1}) == Place{0, 2});
  static_assert(partner_of(loops, ActionKind::receive_forward, {0, 0}).stage == -1);
  static_assert(partner_of(v, ActionKind::hand_forward, {3, 1}) == Place{3, 0});
  static_assert(partner_of(v, ActionKind::send_backward, {1, 1}) == Place{2, 1});
}

TEST_CASE("schedules with several chunks conform, looped and V-shaped, backward in one piece and in two") {
  CHECK_NOTHROW((dtrain::testing::check_schedule<ThereAndBack<Placement::looped, false>>(8, 9)));
  CHECK_NOTHROW((dtrain::testing::check_schedule<ThereAndBack<Placement::looped, true>>(8, 9)));
  CHECK_NOTHROW((dtrain::testing::check_schedule<VShaped<false>>(8, 9)));
  CHECK_NOTHROW((dtrain::testing::check_schedule<VShaped<true>>(8, 9)));
}

TEST_CASE("evaluation needs one slot on each chunk") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (const Table& table : build_forward_only_tables(p, m, chunks))
          CHECK(table.slots == std::vector<int>(static_cast<std::size_t>(chunks), 1));
      for (const Table& table : build_forward_only_tables(p, m, 2, Placement::v_shaped))
        CHECK(table.slots == std::vector{1, 1});
    }
}

TEST_CASE("where the V turns, values are handed on within the stage") {
  const std::vector<Table> tables = build_tables<VShaped<true>>(2, 1);
  std::vector<ActionKind> kinds;
  for (const Action& action : tables[1].actions) kinds.push_back(action.kind);
  using enum ActionKind;
  CHECK(kinds == std::vector{receive_forward, forward, hand_forward, forward, send_forward, receive_backward,
                             backward_input, hand_backward, backward_input, send_backward, backward_weight,
                             backward_weight});
  // Stage 1 sends both passes to stage 0: the gradient of chunk 0 after the activation of chunk 0 on its way back.
  CHECK(bubble_of(tables) > 0);
}

TEST_CASE("a strategy names the chunks") {
  using Pipeline = dtrain::PipelineParallel<2, ThereAndBack<Placement::looped, false>, dtrain::Chunks<3>>;
  static_assert(Pipeline::chunks == 3 && Pipeline::virtual_stages == 6 && Pipeline::placement == Placement::looped);
  CHECK(Pipeline::describe() == "PipelineParallel<2, ThereAndBack, Chunks<3>>");
  static_assert(dtrain::PipelineParallel<2, VShaped<true>>::virtual_stages == 4);
}

// fault E3, fault E5, fault E6: every number of stages, micro-batches and chunks, judged with its messages, slots and
// promised bubble; what is computed comes out even, and what is in flight is what the formula says.
TEST_CASE_TEMPLATE("the published schedules conform on the whole grid", S, Interleaved1F1B, ZeroBubbleH1, ZeroBubbleV) {
  CHECK_NOTHROW(dtrain::testing::check_schedule<S>(8, 16, 4));
  for (int chunks = own_chunks<S>; chunks <= (TakesChunks<S> ? 4 : own_chunks<S>); ++chunks)
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m) {
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(chunks);
        check_invariants<S>(p, m, chunks);
      }
}

TEST_CASE("interleaving divides the bubble of 1F1B by the chunks, also where micro-batches do not divide") {
  CHECK(Interleaved1F1B::bubble(4, 8, 2) == doctest::Approx(3.0 / (2 * 8 + 3)).epsilon(1e-15));
  for (int p = 2; p <= 8; ++p)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (const int m : {p, p + 1, 2 * p - 1, 2 * p, 3 * p + 1}) {
        // (p - 1) / (v m) of the ideal time: Narayanan et al., SC 2021, section 2.2.2.
        const double share = Interleaved1F1B::bubble(p, m, chunks);
        CHECK(share / (1 - share) == doctest::Approx((p - 1.0) / (chunks * m)).epsilon(1e-12));
        const std::vector<Table> tables = build_tables<Interleaved1F1B>(p, m, chunks);
        for (const Costs& costs : {Costs{1, 1, 1}, Costs{1, 0.5, 0.5}, Costs{2, 1, 3}})
          CHECK(idle_of(tables, costs) ==
                doctest::Approx((p - 1) * (costs.forward + costs.of(ActionKind::backward))).epsilon(1e-12));
      }
  // With one chunk it is 1F1B.
  CHECK(build_tables<Interleaved1F1B>(4, 7, 1)[1].slots == std::vector{Interleaved1F1B::in_flight(1, 4, 7, 1)});
  // Megatron-LM's warm-up: 2 (p - stage - 1) + (v - 1) p forwards, and one more with the first backward.
  CHECK(Interleaved1F1B::in_flight(1, 4, 8, 3) == 2 * 2 + 2 * 4 + 1);
}

// Qi et al., 2023, table 1: the bubble of 1F1B is (p - 1) (F + B + W), that of ZB-H1 (p - 1) (F + B - W).
TEST_CASE("ZB-H1 keeps to the paper's bubble and to the memory of 1F1B's first stage") {
  for (int p = 2; p <= 8; ++p)
    for (const int m : {p, 2 * p, 2 * p + 1, 3 * p}) {
      CAPTURE(p);
      CAPTURE(m);
      const std::vector<Table> tables = build_tables<ZeroBubbleH1>(p, m);
      for (const Costs& costs : {Costs{1, 1, 1}, Costs{1, 2, 1}, Costs{1, 1, 0.5}, Costs{1, 1.5, 0.25}})
        CHECK(idle_of(tables, costs) ==
              doctest::Approx((p - 1) * (costs.forward + costs.backward_input - costs.backward_weight)).epsilon(1e-12));
      CHECK(idle_of(build_tables<OneForwardOneBackward>(p, m), Costs{}) ==
            doctest::Approx(3.0 * (p - 1)).epsilon(1e-12));
      for (int stage = 0; stage < p; ++stage)
        CHECK(ZeroBubbleH1::in_flight(stage, p, m) == OneForwardOneBackward::in_flight(0, p, m));
    }
}

// Qi et al., 2024: no bubble between the first and the last computation of a stage, in the memory of 1F1B.
TEST_CASE("a stage of ZB-V never waits once it has begun") {
  for (int p = 1; p <= 8; ++p)
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1}) {
      CAPTURE(p);
      CAPTURE(m);
      const std::vector<Table> tables = build_tables<ZeroBubbleV>(p, m);
      const Replay replay(tables, Costs{}, Waiting::at_use);
      for (int stage = 0; stage < p; ++stage) {
        const auto& actions = tables[static_cast<std::size_t>(stage)].actions;
        double begin = -1, end = 0;
        for (std::size_t row = 0; row < actions.size(); ++row) {
          if (!is_compute(actions[row].kind)) continue;
          const double at = replay.begin_of(stage, static_cast<int>(row));
          if (begin < 0) begin = at;
          end = at + 1;
        }
        CHECK(begin == stage);
        CHECK(end - begin == 6 * m);
        // Halves of a stage.
        CHECK(ZeroBubbleV::in_flight(stage, p, m) == 2 * OneForwardOneBackward::in_flight(0, p, m));
      }
      CHECK(ZeroBubbleV::bubble(p, m) == doctest::Approx((p - 1.0) / (6 * m + p - 1)).epsilon(1e-12));
    }
}

TEST_CASE("what finishes in groups finishes at use, and no later") {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 12; ++m)
      for (const auto& tables : {build_tables<Interleaved1F1B>(p, m, 3), build_tables<ZeroBubbleV>(p, m)}) {
        const Costs costs{1, 1.75, 0.5};
        const Replay strict(tables, costs);
        const Replay loose(tables, costs, Waiting::at_use);
        REQUIRE(strict.finished());
        REQUIRE(loose.finished());
        for (int stage = 0; stage < p; ++stage) REQUIRE(loose.clock(stage) <= strict.clock(stage) + 1e-12);
      }
}

TEST_CASE("chunked schedules are judged in constant expressions, and refuse chunks that are not theirs") {
  static_assert(sound<Interleaved1F1B, 2, 2>() && sound<ZeroBubbleH1, 3>() && sound<ZeroBubbleV, 2>());
  CHECK_THROWS_WITH_AS(build_tables<ZeroBubbleV>(2, 3, 4),
                       "dtrain: schedule ZeroBubbleV is made for 2 chunks per stage, not 4",
                       dtrain::ConfigurationError);
  CHECK_THROWS_WITH_AS(build_tables<Interleaved1F1B>(2, 3, 0),
                       "dtrain: schedule Interleaved1F1B needs at least one chunk per stage, not 0",
                       dtrain::ConfigurationError);
}
