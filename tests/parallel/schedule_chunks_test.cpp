#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "dtrain/parallel/policies.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
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
