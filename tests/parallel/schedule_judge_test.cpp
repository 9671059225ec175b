#include "dtrain/parallel/schedule_judge.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "dtrain/testing/schedule_conformance.hpp"

using namespace dtrain::schedule;
using Kind = ActionKind;

namespace {

/// Moves marked data through tables: an independent account of what a set of tables would do. Every slot of every chunk
/// has four arrays and what forward keeps for backward; each holds a mark of the data it has. True if every stage ends,
/// having computed each micro-batch once each way on the right data on each chunk, and no message is left over.
class DataFlow {
 public:
  DataFlow(const std::vector<Table>& tables, int micro_batches)
      : pipeline_(pipeline_of(tables)), micro_batches_(micro_batches), stages_(tables.size()) {
    for (std::size_t s = 0; s < tables.size(); ++s)
      for (const Action& action : tables[s].actions) groups(s, action);
  }

  bool right() {
    bool moved = true;
    while (moved && !wrong_) {
      moved = false;
      for (std::size_t s = 0; s < stages_.size() && !wrong_; ++s)
        while (!wrong_ && step(s)) moved = true;
    }
    if (wrong_) return false;
    for (Stage& stage : stages_) {
      if (stage.next != stage.groups.size()) return false;
      for (int chunk = 0; chunk < pipeline_.chunks; ++chunk)
        for (int k = 0; k < micro_batches_; ++k)
          if (stage.forwards[{chunk, k}] != 1 || stage.inputs[{chunk, k}] != 1 || stage.weights[{chunk, k}] != 1)
            return false;
    }
    return true;
  }

 private:
  /// What an array holds: an activation or a gradient, of which virtual stage, of which micro-batch.
  struct Mark {
    bool gradient = false;
    int virtual_stage = 0;
    int micro_batch = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  struct Slot {
    std::optional<Mark> input, output, output_gradient, input_gradient;
    std::optional<int> kept, half;
  };
  struct Stage {
    std::vector<std::vector<Action>> groups;
    bool open = false;
    std::size_t next = 0;
    bool posted = false;
    std::vector<std::pair<std::pair<std::pair<int, int>, bool>, std::size_t>> waiting;  // link, end, number of each row
    std::map<std::pair<int, int>, Slot> slots;                                          // by chunk and number
    std::map<std::pair<int, int>, int> forwards, inputs, weights, hands;
  };
  struct Link {
    std::vector<std::optional<Mark>> sent;
    std::size_t asked = 0;
  };

  void groups(std::size_t s, const Action& action) {
    Stage& stage = stages_[s];
    if (!stage.open) stage.groups.emplace_back();
    stage.groups.back().push_back(action);
    stage.open = action.grouped_with_next;
  }
  static bool sends(Kind kind) { return kind == Kind::send_forward || kind == Kind::send_backward; }
  int number(std::size_t s, const Action& action) const {
    return pipeline_.virtual_stage({static_cast<int>(s), action.chunk});
  }
  /// Messages from one stage to another share a link, whatever they carry.
  std::pair<int, int> link(std::size_t s, const Action& action) const {
    const int here = static_cast<int>(s);
    const int there = partner_of(pipeline_, action.kind, {here, action.chunk}).stage;
    return sends(action.kind) ? std::pair{here, there} : std::pair{there, here};
  }

  bool step(std::size_t s) {
    Stage& stage = stages_[s];
    if (stage.next == stage.groups.size()) return false;
    const std::vector<Action>& group = stage.groups[stage.next];
    if (group.size() == 1 && !is_message(group[0].kind)) {
      is_hand(group[0].kind) ? hand(s, group[0]) : compute(s, group[0]);
      ++stage.next;
      return true;
    }
    if (!stage.posted) {
      stage.posted = true;
      stage.waiting.clear();
      for (const Action& action : group) {
        if (!is_message(action.kind)) return !(wrong_ = true);
        const auto name = DataFlow::link(s, action);
        Link& link = links_[name];
        if (sends(action.kind)) {
          const Slot& slot = stage.slots[{action.chunk, action.slot}];
          const bool gradient = action.kind == Kind::send_backward;
          link.sent.push_back(gradient ? slot.input_gradient : slot.output);
          if (link.sent.back() != Mark{gradient, number(s, action), action.micro_batch}) return !(wrong_ = true);
          stage.waiting.push_back({{name, true}, link.sent.size() - 1});
        } else {
          stage.waiting.push_back({{name, false}, link.asked++});
        }
      }
    }
    for (const auto& [where, message] : stage.waiting) {
      const Link& link = links_[where.first];
      if (where.second ? link.asked <= message : link.sent.size() <= message) return false;
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (sends(group[i].kind)) continue;
      const std::optional<Mark> data = links_[stage.waiting[i].first.first].sent[stage.waiting[i].second];
      const bool gradient = group[i].kind == Kind::receive_backward;
      const int from = number(s, group[i]) + (gradient ? 1 : -1);
      if (data != Mark{gradient, from, group[i].micro_batch}) return !(wrong_ = true);
      Slot& slot = stage.slots[{group[i].chunk, group[i].slot}];
      (gradient ? slot.output_gradient : slot.input) = data;
    }
    stage.posted = false;
    ++stage.next;
    return true;
  }

  void hand(std::size_t s, const Action& action) {
    Stage& stage = stages_[s];
    const bool gradient = action.kind == Kind::hand_backward;
    const int from = number(s, action) + (gradient ? 1 : -1);
    const Slot& giver = stage.slots[{giving_chunk(action), action.from_slot}];
    const std::optional<Mark> data = gradient ? giver.input_gradient : giver.output;
    if (data != Mark{gradient, from, action.micro_batch}) wrong_ = true;
    if (++stage.hands[{2 * action.chunk + (gradient ? 1 : 0), action.micro_batch}] > 1) wrong_ = true;
    Slot& slot = stage.slots[{action.chunk, action.slot}];
    (gradient ? slot.output_gradient : slot.input) = data;
  }

  void compute(std::size_t s, const Action& action) {
    Stage& stage = stages_[s];
    Slot& slot = stage.slots[{action.chunk, action.slot}];
    const int k = action.micro_batch;
    const int here = number(s, action);
    if (action.kind == Kind::forward) {
      if (here > 0 && slot.input != Mark{false, here - 1, k}) wrong_ = true;
      slot.output = Mark{false, here, k};
      slot.kept = k;
      slot.half.reset();
      ++stage.forwards[{action.chunk, k}];
      return;
    }
    if (slot.kept != k) wrong_ = true;
    if (action.kind != Kind::backward_weight) {
      if (here + 1 < pipeline_.virtual_stages() && slot.output_gradient != Mark{true, here + 1, k}) wrong_ = true;
      slot.input_gradient = Mark{true, here, k};
      slot.half = k;
      ++stage.inputs[{action.chunk, k}];
    }
    if (action.kind != Kind::backward_input) {
      if (slot.half != k) wrong_ = true;
      slot.kept.reset();
      ++stage.weights[{action.chunk, k}];
    }
  }

  VirtualPipeline pipeline_;
  int micro_batches_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, Link> links_;
  bool wrong_ = false;
};

/// Judges damaged tables and compares with what they would do.
struct Damage {
  int made = 0;
  int harmful = 0;
  std::set<Failure> failures;

  template <class S>
  void check(const std::vector<Table>& tables, int micro_batches, int chunks) {
    const Verdict verdict = judge_tables<S>(tables, micro_batches, chunks);
    ++made;
    failures.insert(verdict.failure);
    const bool nonsense = verdict.failure == Failure::malformed;
    const bool works = !nonsense && DataFlow(tables, micro_batches).right();
    if (!works) ++harmful;
    if (verdict.ok() == works) return;
    // The judge may be stricter than this one run of the data: it keeps a slot until its last message has left.
    const bool stricter =
        verdict.failure == Failure::slot_overwritten || verdict.failure == Failure::in_flight_above_limit;
    if (works && stricter) return;
    FAIL_CHECK(describe(verdict, S::name) << (works ? ", but it works" : ", but it does not work"));
  }
};

template <class S>
Damage damage(int stages, int micro_batches, int chunks = own_chunks<S>) {
  const std::vector<Table> whole = build_tables<S>(stages, micro_batches, chunks);
  Damage damage;
  for (std::size_t s = 0; s < whole.size(); ++s) {
    const auto change = [&](auto edit) {
      std::vector<Table> tables = whole;
      edit(tables[s]);
      damage.check<S>(tables, micro_batches, chunks);
    };
    const auto rows = static_cast<std::ptrdiff_t>(whole[s].actions.size());
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      change([&](Table& table) { table.actions.erase(table.actions.begin() + row); });
      for (std::ptrdiff_t to = 0; to <= rows; ++to)
        change([&](Table& table) { table.actions.insert(table.actions.begin() + to, Action(table.actions[at])); });
      for (std::ptrdiff_t other = row + 1; other < rows; ++other) {
        const auto with = static_cast<std::size_t>(other);
        change([&](Table& table) { std::swap(table.actions[at], table.actions[with]); });
        // The same, with the groups left where they are.
        change([&](Table& table) {
          std::swap(table.actions[at], table.actions[with]);
          std::swap(table.actions[at].grouped_with_next, table.actions[with].grouped_with_next);
        });
      }
      change([&](Table& table) { table.actions[at].grouped_with_next = !table.actions[at].grouped_with_next; });
      for (int k = -1; k <= micro_batches; ++k) change([&](Table& table) { table.actions[at].micro_batch = k; });
      for (int slot = -1; slot <= whole[s].slots_of(whole[s].actions[at].chunk); ++slot) {
        change([&](Table& table) { table.actions[at].slot = slot; });
        change([&](Table& table) { table.actions[at].from_slot = slot; });
      }
      for (int chunk = -1; chunk <= chunks; ++chunk) change([&](Table& table) { table.actions[at].chunk = chunk; });
      for (int kind = 0; kind < action_kinds; ++kind)
        change([&](Table& table) { table.actions[at].kind = static_cast<Kind>(kind); });
    }
    // One micro-batch in another slot, from its first row to its last.
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int k = 0; k < micro_batches; ++k)
        for (int slot = 0; slot < whole[s].slots_of(chunk); ++slot)
          change([&](Table& table) {
            for (Action& action : table.actions) {
              if (action.micro_batch != k) continue;
              if (action.chunk == chunk) action.slot = slot;
              if (is_hand(action.kind) && giving_chunk(action) == chunk) action.from_slot = slot;
            }
          });
  }
  return damage;
}

Action row(Kind kind, int micro_batch, int slot = 0) { return {kind, micro_batch, slot}; }
Action with_next(Kind kind, int micro_batch, int slot = 0) { return {kind, micro_batch, slot, true}; }

/// Two stages, two micro-batches, one-forward-one-backward, to be damaged.
std::vector<Table> two_stages() {
  return {
      {{row(Kind::forward, 0, 0), row(Kind::send_forward, 0, 0), row(Kind::forward, 1, 1),
        with_next(Kind::send_forward, 1, 1), row(Kind::receive_backward, 0, 0), row(Kind::backward, 0, 0),
        row(Kind::receive_backward, 1, 1), row(Kind::backward, 1, 1)},
       {2}},
      {{row(Kind::receive_forward, 0), row(Kind::forward, 0), row(Kind::backward, 0), with_next(Kind::send_backward, 0),
        row(Kind::receive_forward, 1), row(Kind::forward, 1), row(Kind::backward, 1), row(Kind::send_backward, 1)},
       {1}}};
}
std::string say(const std::vector<Table>& tables, int micro_batches = 2) {
  return describe(judge_tables<OneForwardOneBackward>(tables, micro_batches), "X");
}
constexpr const char* start = "dtrain: schedule X with 2 stages and 2 micro-batches ";

}  // namespace

// fault E5, fault E6: whatever is removed, doubled, swapped or changed in a table is found, unless it changes nothing.
TEST_CASE_TEMPLATE("the judge finds every harmful change of one row", S, GPipe, OneForwardOneBackward) {
  std::set<Failure> failures;
  for (int stages = 1; stages <= 4; ++stages)
    for (const int micro_batches : {1, 2, 3, 5}) {
      CAPTURE(stages);
      CAPTURE(micro_batches);
      REQUIRE(DataFlow(build_tables<S>(stages, micro_batches), micro_batches).right());
      const Damage found = damage<S>(stages, micro_batches);
      CHECK(found.made > 30);
      CHECK(found.harmful > found.made / 2);
      failures.insert(found.failures.begin(), found.failures.end());
    }
  for (const Failure failure :
       {Failure::none, Failure::malformed, Failure::forward_backward_mismatch, Failure::unmatched_message,
        Failure::message_order, Failure::use_before_arrival, Failure::slot_overwritten, Failure::deadlock})
    CHECK(failures.count(failure) == 1);
}

// fault E5: the same where the backward pass has two parts, where both passes and several chunks share the messages
// from one stage to another, and where values are handed on within a stage.
TEST_CASE("the judge finds every harmful change of one row of chunked schedules") {
  const auto found = [](const Damage& damage) {
    CHECK(damage.made > 30);
    CHECK(damage.harmful > damage.made / 2);
  };
  for (const int micro_batches : {1, 3}) {
    CAPTURE(micro_batches);
    for (int stages = 1; stages <= 3; ++stages) {
      CAPTURE(stages);
      REQUIRE(DataFlow(build_tables<ZeroBubbleV>(stages, micro_batches), micro_batches).right());
      found(damage<ZeroBubbleH1>(stages, micro_batches));
      found(damage<ZeroBubbleV>(stages, micro_batches));
    }
    found(damage<Interleaved1F1B>(1, micro_batches, 2));
    found(damage<Interleaved1F1B>(2, micro_batches, 2));
    found(damage<Interleaved1F1B>(2, micro_batches, 3));
    found(damage<Interleaved1F1B>(3, micro_batches, 2));
  }
}

// fault E5: messages of one micro-batch between the same two stages, told apart by their pass and chunk alone.
TEST_CASE("a receive that overtakes another one is found, also where micro-batches agree") {
  int overtaken = 0;
  const auto check = [&](const std::vector<Table>& tables, int chunks) {
    for (std::size_t s = 0; s < tables.size(); ++s)
      for (std::size_t later = 1; later < tables[s].actions.size(); ++later) {
        const Action& moved = tables[s].actions[later];
        if (!is_receive(moved.kind)) continue;
        for (std::size_t row = later; row-- > 0;) {
          const Action& other = tables[s].actions[row];
          if (!is_receive(other.kind)) continue;
          if (other.micro_batch == moved.micro_batch && (other.kind != moved.kind || other.chunk != moved.chunk)) {
            // Two stages: both come from the other one.
            std::vector<Table> changed = tables;
            auto& rows = changed[s].actions;
            if (later > 0 && !moved.grouped_with_next) rows[later - 1].grouped_with_next = false;
            Action alone = moved;
            alone.grouped_with_next = false;
            rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(later));
            std::size_t before = row;
            while (before > 0 && rows[before - 1].grouped_with_next) --before;
            rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(before), alone);
            const std::vector<int> enough(2, 100);
            CHECK(judge(changed, 1, enough).failure == Failure::message_order);
            ++overtaken;
          }
          break;
        }
      }
    CHECK(pipeline_of(tables).chunks == chunks);
  };
  check(build_tables<ZeroBubbleV>(2, 1), 2);
  check(build_tables<Interleaved1F1B>(2, 1, 2), 2);
  check(build_tables<Interleaved1F1B>(2, 1, 4), 4);
  CHECK(overtaken > 5);
}

TEST_CASE("the data of every published schedule arrive where they belong") {
  for (int p = 1; p <= 8; ++p)
    for (const int m : {1, 2, p, 2 * p + 1}) {
      CAPTURE(p);
      CAPTURE(m);
      CHECK(DataFlow(build_tables<ZeroBubbleH1>(p, m), m).right());
      CHECK(DataFlow(build_tables<ZeroBubbleV>(p, m), m).right());
      for (int chunks = 1; chunks <= 4; ++chunks)
        CHECK(DataFlow(build_tables<Interleaved1F1B>(p, m, chunks), m).right());
    }
}

// fault E2: sends that wait for their receives. Both sides send first, and neither comes to receive.
TEST_CASE("opposing sends that are not grouped deadlock") {
  std::vector<Table> tables = two_stages();
  REQUIRE(say(tables) == start + std::string("is sound"));
  REQUIRE(tables == build_tables<OneForwardOneBackward>(2, 2));
  tables[0].actions[3].grouped_with_next = false;
  CHECK(say(tables) == start + std::string("is sound"));  // the other side still does both at once
  tables[1].actions[3].grouped_with_next = false;
  const Verdict verdict = judge_tables<OneForwardOneBackward>(tables, 2);
  CHECK(verdict.failure == Failure::deadlock);
  CHECK(verdict.stage == 0);
  CHECK(verdict.row == 3);
  CHECK(verdict.other_stage == 1);
  CHECK(say(tables) == start + std::string("deadlocks: stage 0 waits in 'send forward of micro-batch 1 to stage 1' "
                                           "while stage 1 waits in 'send backward of micro-batch 0 to stage 0'"));
  // One side turned around mends it.
  std::swap(tables[0].actions[3], tables[0].actions[4]);
  CHECK(say(tables) == start + std::string("is sound"));
}

TEST_CASE("every pair of ungrouped opposing sends deadlocks, at every place of the pipeline") {
  for (int p = 2; p <= 6; ++p)
    for (int m = 2; m <= 8; ++m) {
      std::vector<Table> tables = build_tables<OneForwardOneBackward>(p, m);
      bool opposing = false;
      for (Table& table : tables)
        for (Action& action : table.actions) {
          opposing = opposing || (action.grouped_with_next && action.kind == Kind::send_backward);
          action.grouped_with_next = false;
        }
      REQUIRE(opposing);
      CHECK(judge_tables<OneForwardOneBackward>(tables, m).failure == Failure::deadlock);
    }
}

TEST_CASE("compute orders that wait for each other deadlock") {
  // Stage 0 wants its gradient back before it goes on; stage 1 wants both micro-batches first.
  const std::vector<std::vector<Compute>> circle = {
      {{Work::forward, 0}, {Work::backward, 0}, {Work::forward, 1}, {Work::backward, 1}},
      {{Work::forward, 0}, {Work::forward, 1}, {Work::backward, 0}, {Work::backward, 1}}};
  const std::vector<int> limits = {2, 2};
  const Verdict verdict = judge(derive_communication(circle, 2), 2, limits);
  CHECK(verdict.failure == Failure::deadlock);
  CHECK(describe(verdict, "X") ==
        start + std::string("deadlocks: stage 0 waits in 'receive backward of micro-batch 0 from stage 1' while stage "
                            "1 waits in 'receive forward of micro-batch 1 from stage 0'"));
}

TEST_CASE("orders in which stages take micro-batches differently are sound when the data allow it") {
  const std::vector<std::vector<Compute>> turned = {
      {{Work::forward, 0}, {Work::forward, 1}, {Work::backward, 0}, {Work::backward, 1}},
      {{Work::forward, 1}, {Work::forward, 0}, {Work::backward, 0}, {Work::backward, 1}}};
  const std::vector<int> limits = {2, 2};
  const std::vector<Table> tables = derive_communication(turned, 2);
  CHECK(judge(tables, 2, limits).ok());
  CHECK(DataFlow(tables, 2).right());
}

// fault E5: an operation without its other end inside a group.
TEST_CASE("messages with one end are found inside groups") {
  std::vector<Table> tables = two_stages();
  tables[1].actions.erase(tables[1].actions.begin() + 3);
  CHECK(say(tables) ==
        start + std::string("has a message with one end: stage 1 never does 'send backward of micro-batch 0 to stage "
                            "0', which stage 0 needs for its 'receive backward'"));
  tables = two_stages();
  tables[0].actions.insert(tables[0].actions.begin() + 3, tables[0].actions[3]);
  CHECK(say(tables) ==
        start + std::string("has a message with one end: stage 0 does 'send forward of micro-batch 1 to stage 1' 2 "
                            "times and should once"));
}

TEST_CASE("each kind of failure has its sentence") {
  std::vector<Table> tables = two_stages();
  tables[1].actions[5].micro_batch = 0;
  CHECK(say(tables) == start + std::string("mismatches forward and backward: stage 1 runs the forward of micro-batch 0 "
                                           "2 times instead of once"));
  tables = two_stages();
  tables[0].actions.pop_back();
  CHECK(say(tables) == start + std::string("mismatches forward and backward: stage 0 runs the backward of micro-batch "
                                           "1 never instead of once"));
  tables = two_stages();
  std::swap(tables[1].actions[1], tables[1].actions[2]);
  CHECK(say(tables) == start + std::string("mismatches forward and backward: stage 1 runs the backward of micro-batch "
                                           "0 in row 1, before its forward"));
  tables = two_stages();
  std::swap(tables[1].actions[0].micro_batch, tables[1].actions[4].micro_batch);
  CHECK(say(tables) == start + std::string("mixes up the order of messages: stage 0 does 'send forward of micro-batch "
                                           "0 to stage 1' in row 1 while stage 1 expects 'receive forward of "
                                           "micro-batch 1'"));
  tables = two_stages();
  std::swap(tables[0].actions[6], tables[0].actions[7]);
  CHECK(say(tables) == start + std::string("uses data before it is there: stage 0 does 'backward of micro-batch 1' in "
                                           "row 6 before the row that provides it"));
  tables = two_stages();
  tables[0].actions[0].micro_batch = 2;
  CHECK(say(tables) == start + std::string("has a row that means nothing: row 0 of stage 0 (forward of micro-batch 2) "
                                           "names a micro-batch, chunk, slot or neighbour that does not exist, or "
                                           "groups a computation"));
  tables = two_stages();
  for (Action& action : tables[0].actions) action.slot = 0;
  CHECK(say(tables) ==
        start + std::string("overwrites a living micro-batch: stage 0 does 'forward of micro-batch 1' in "
                            "row 2 in the slot that still holds micro-batch 0"));
  tables = two_stages();
  tables[0].actions[5].slot = 1;
  CHECK(say(tables) == start + std::string("moves a living micro-batch: stage 0 does 'backward of micro-batch 0' in "
                                           "slot 1 in row 5 but keeps the micro-batch in another slot"));
  tables = two_stages();
  const std::vector<int> one_each = {1, 1};
  CHECK(describe(judge(tables, 2, one_each), "X") ==
        start + std::string("exceeds its in-flight limit: stage 0 holds 2 micro-batches at once and declares 1"));
  tables[1].slots = {3};
  CHECK(say(tables) ==
        start + std::string("exceeds its in-flight limit: stage 1 holds 3 micro-batches at once and declares 1"));
}

TEST_CASE("a pass without gradients has none") {
  const std::vector<int> limits = {2, 2};
  CHECK(judge(two_stages(), 2, limits, Pass::forward_only).failure == Failure::forward_backward_mismatch);
  CHECK(judge(forward_only_tables(2, 2), 2, limits, Pass::forward_only).ok());
  CHECK(judge(forward_only_tables(2, 2), 2, limits, Pass::training).failure == Failure::forward_backward_mismatch);
}

TEST_CASE("orders that leave something out or name what is not there are refused, not misread") {
  const std::vector<int> limits = {4, 4, 4};
  const auto failure = [&](const std::vector<std::vector<Compute>>& orders) {
    return judge(derive_communication(orders, 2), 2, limits).failure;
  };
  const std::vector<Compute> whole = GPipe::order(0, 3, 2);
  CHECK(failure({whole, whole, whole}) == Failure::none);
  for (std::size_t stage = 0; stage < 3; ++stage)
    for (std::size_t item = 0; item < whole.size(); ++item) {
      std::vector<std::vector<Compute>> orders = {whole, whole, whole};
      orders[stage].erase(orders[stage].begin() + static_cast<std::ptrdiff_t>(item));
      CHECK(failure(orders) == Failure::forward_backward_mismatch);
      orders = {whole, whole, whole};
      orders[stage].push_back(whole[item]);
      CHECK(failure(orders) == Failure::forward_backward_mismatch);
      orders = {whole, whole, whole};
      orders[stage][item].micro_batch = 2;
      CHECK(failure(orders) == Failure::malformed);
      orders[stage][item].micro_batch = -1;
      CHECK(failure(orders) == Failure::malformed);
    }
  CHECK(failure({whole, {}, whole}) == Failure::forward_backward_mismatch);
}

namespace {

struct Greedy {  // promises one micro-batch in flight, and holds all
  static constexpr std::string_view name = "Greedy";
  static constexpr std::vector<Compute> order(int stage, int stages, int m) { return GPipe::order(stage, stages, m); }
  static constexpr int in_flight(int, int, int) { return 1; }
};
struct Boastful {  // promises no bubble
  static constexpr std::string_view name = "Boastful";
  static constexpr std::vector<Compute> order(int stage, int stages, int m) { return GPipe::order(stage, stages, m); }
  static constexpr int in_flight(int, int, int m) { return m; }
  static constexpr double bubble(int, int) { return 0; }
};

}  // namespace

TEST_CASE("start-up and the conformance suite refuse with the judge's sentence") {
  CHECK_THROWS_WITH_AS(build_tables<Greedy>(2, 3),
                       "dtrain: schedule Greedy with 2 stages and 3 micro-batches exceeds its in-flight limit: stage 0 "
                       "holds 2 micro-batches at once and declares 1",
                       dtrain::ConfigurationError);
  CHECK_THROWS_AS(dtrain::testing::check_schedule<Greedy>(2, 2), dtrain::ConfigurationError);
  CHECK_THROWS_WITH_AS(dtrain::testing::check_schedule<Boastful>(3, 4),
                       "dtrain: schedule Boastful with 2 stages and 1 micro-batch promises a bubble of 0 and has one "
                       "of 0.5 when all computations cost the same",
                       dtrain::Error);
}

TEST_CASE("a timeline shows who waits") {
  CHECK(draw(build_tables<OneForwardOneBackward>(2, 2)) ==
        "stage 0 | F0 F1 .  B0 .  B1\n"
        "stage 1 | .  F0 B0 F1 B1 .\n");
}
