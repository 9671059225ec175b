#include "dtrain/parallel/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/testing/schedule_conformance.hpp"

using namespace dtrain::schedule;

namespace {

/// `F0 | sF0+rB0 | B0`: the rows of a table, groups joined by +.
std::string spell(const Table& table) {
  std::string out;
  for (const Action& action : table.actions) {
    const char* names[] = {"F", "B", "sF", "rF", "sB", "rB", "I", "W", "hF", "hB"};
    out += names[static_cast<int>(action.kind)] + std::to_string(action.micro_batch);
    out += action.grouped_with_next ? "+" : " ";
  }
  out.pop_back();
  return out;
}

template <class S>
void check_invariants(int stages, int micro_batches) {
  CAPTURE(stages);
  CAPTURE(micro_batches);
  const std::vector<Table> tables = build_tables<S>(stages, micro_batches);
  REQUIRE(static_cast<int>(tables.size()) == stages);
  for (int stage = 0; stage < stages; ++stage) {
    const Table& table = tables[static_cast<std::size_t>(stage)];
    std::vector<int> forwards(static_cast<std::size_t>(micro_batches)), backwards = forwards;
    int in_flight = 0, most = 0, computations = 0, messages = 0;
    for (const Action& action : table.actions) {
      const auto k = static_cast<std::size_t>(action.micro_batch);
      if (action.kind == ActionKind::forward) ++forwards[k], ++in_flight;
      if (action.kind == ActionKind::backward) ++backwards[k], --in_flight;
      (is_compute(action.kind) ? computations : messages) += 1;
      CHECK(in_flight >= 0);
      most = std::max(most, in_flight);
    }
    CHECK(in_flight == 0);
    CHECK(computations == 2 * micro_batches);
    const int neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < stages ? 1 : 0);
    CHECK(messages == 2 * micro_batches * neighbours);
    for (int k = 0; k < micro_batches; ++k) {
      CHECK(forwards[static_cast<std::size_t>(k)] == 1);
      CHECK(backwards[static_cast<std::size_t>(k)] == 1);
    }
    CHECK(most == S::in_flight(stage, stages, micro_batches));
    CHECK(table.slots == std::vector{S::in_flight(stage, stages, micro_batches)});
  }
}

}  // namespace

// fault E1: fewer micro-batches than stages, and one micro-batch, finish; the bubble is (p - 1) / (m + p - 1).
TEST_CASE_TEMPLATE("the schedules conform on the whole grid", S, GPipe, OneForwardOneBackward) {
  CHECK_NOTHROW(dtrain::testing::check_schedule<S>(8, 16));
  CHECK(S::bubble(4, 2) == doctest::Approx(0.6).epsilon(1e-15));
  CHECK(S::bubble(4, 8) == doctest::Approx(3.0 / 11).epsilon(1e-15));
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const double expected = (p - 1.0) / (m + p - 1.0);
      CHECK(S::bubble(p, m) == expected);
      const std::vector<Table> tables = build_tables<S>(p, m);
      CHECK(bubble_of(tables, 1, 1) == doctest::Approx(expected).epsilon(1e-12));
      CHECK(bubble_of(tables, 1, 2) == doctest::Approx(expected).epsilon(1e-12));
    }
}

// fault E2: as many micro-batches as stages.
TEST_CASE_TEMPLATE("as many micro-batches as stages finish under rendezvous", S, GPipe, OneForwardOneBackward) {
  for (int p = 1; p <= 16; ++p) {
    const std::vector<Table> tables = build_tables<S>(p, p);
    CHECK(judge_tables<S>(tables, p).ok());
    CHECK(Replay(tables).finished());
  }
  CHECK_NOTHROW(build_tables<S>(12, 64));
}

// fault E3: micro-batches that the four stages do not divide: two rounds and a half, and less than one.
TEST_CASE_TEMPLATE("micro-batches need not divide over the stages", S, GPipe, OneForwardOneBackward) {
  for (const int m : {10, 3}) {
    CAPTURE(m);
    const std::vector<Table> tables = build_tables<S>(4, m);
    CHECK(judge_tables<S>(tables, m).ok());
    CHECK(Replay(tables).finished());
    check_invariants<S>(4, m);
  }
}

// fault E6: forwards equal backwards, the running sum is never negative and ends at zero, the length is 2 m.
TEST_CASE_TEMPLATE("tables keep their invariants", S, GPipe, OneForwardOneBackward) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) check_invariants<S>(p, m);
}

TEST_CASE("in-flight limits follow the formulas") {
  CHECK(GPipe::in_flight(0, 4, 8) == 8);
  CHECK(GPipe::in_flight(3, 4, 8) == 8);
  CHECK(OneForwardOneBackward::in_flight(0, 4, 8) == 4);
  CHECK(OneForwardOneBackward::in_flight(3, 4, 8) == 1);
  CHECK(OneForwardOneBackward::in_flight(0, 4, 2) == 2);
}

TEST_CASE("one-forward-one-backward exchanges in pairs") {
  const std::vector<Table> tables = build_tables<OneForwardOneBackward>(2, 3);
  CHECK(spell(tables[0]) == "F0 sF0 F1 sF1+rB0 B0 F2 sF2+rB1 B1 rB2 B2");
  CHECK(spell(tables[1]) == "rF0 F0 B0 sB0+rF1 F1 B1 sB1+rF2 F2 B2 sB2");
}

TEST_CASE("GPipe receives while it sends") {
  const std::vector<Table> tables = build_tables<GPipe>(3, 2);
  CHECK(spell(tables[0]) == "F0 sF0 F1 sF1 rB0 B0 rB1 B1");
  CHECK(spell(tables[1]) == "rF0 F0 sF0+rF1 F1 sF1 rB0 B0 sB0+rB1 B1 sB1");
  CHECK(spell(tables[2]) == "rF0 F0 rF1 F1 B0 sB0 B1 sB1");
}

TEST_CASE("one stage communicates with nobody") {
  CHECK(spell(build_tables<OneForwardOneBackward>(1, 3)[0]) == "F0 B0 F1 B1 F2 B2");
  CHECK(spell(build_tables<GPipe>(1, 2)[0]) == "F0 F1 B0 B1");
}

TEST_CASE("evaluation runs forward alone, in one slot") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      const std::vector<Table> tables = build_forward_only_tables(p, m);
      for (const Table& table : tables) CHECK(table.slots == std::vector{1});
      // The pipeline fills and drains: m + p - 1 time units.
      CHECK(bubble_of(tables, 1, 1) == doctest::Approx((p - 1.0) / (m + p - 1.0)).epsilon(1e-12));
    }
  CHECK(spell(forward_only(1, 3, 2)) == "rF0 F0 sF0+rF1 F1 sF1");
}

TEST_CASE("slots are the lowest that are free, from the first row of a micro-batch to its last") {
  const std::vector<Table> tables = build_tables<OneForwardOneBackward>(3, 5);
  std::vector<int> slots(5, -1);
  for (const Action& action : tables[0].actions)
    if (action.kind == ActionKind::forward) slots[static_cast<std::size_t>(action.micro_batch)] = action.slot;
  CHECK(slots == std::vector{0, 1, 2, 0, 1});
  // A gradient that is sent late keeps its slot until then.
  Table late{{{ActionKind::forward, 0},
              {ActionKind::backward, 0},
              {ActionKind::receive_forward, 1},
              {ActionKind::send_backward, 0, 0, true},
              {ActionKind::receive_forward, 2}}};
  assign_slots(late);
  CHECK(late.slots == std::vector{2});
  CHECK(late.actions[2].slot == 1);
  CHECK(late.actions[4].slot == 0);
}

TEST_CASE("schedules are judged in constant expressions") {
  static_assert(sound<GPipe, 1>() && sound<GPipe, 4>());
  static_assert(sound<OneForwardOneBackward, 1>() && sound<OneForwardOneBackward, 8>());
  static_assert(SoundFor<OneForwardOneBackward, 4, 2>);
  static_assert(RequireSoundSchedule<OneForwardOneBackward, 3>::value);
  static_assert(bubble_of(tables_of<GPipe>(4, 2), 1, 1) > 0.59999);
  static_assert(!Schedule<int> && !sound<int, 2>());
}

TEST_CASE("a start without stages or micro-batches is refused") {
  CHECK_THROWS_WITH_AS(build_tables<GPipe>(2, 0),
                       "dtrain: schedule GPipe needs at least one stage and one micro-batch, not 2 and 0",
                       dtrain::ConfigurationError);
  CHECK_THROWS_AS(build_tables<OneForwardOneBackward>(0, 3), dtrain::ConfigurationError);
  CHECK_THROWS_AS(build_forward_only_tables(3, -1), dtrain::ConfigurationError);
}
