#include "dtrain/parallel/pending_messages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "../comm/run_ranks.hpp"
#include "dtrain/comm/threads.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"

using namespace dtrain::schedule;
using Clock = std::chrono::steady_clock;

namespace {

/// Runs one stage's table with real messages and slots in which four numbers are kept; `work` does the computations.
template <class Work>
class Stage {
 public:
  Stage(dtrain::comm::Threads& communicator, const std::vector<Table>& tables, Work work)
      : communicator_(communicator),
        pipeline_(pipeline_of(tables)),
        table_(tables[static_cast<std::size_t>(communicator.rank())]),
        work_(work) {}

  /// Whether every computation found the value it reads.
  bool run() {
    for (const Action& action : table_.actions) {
      if (is_message(action.kind)) {
        pending_.keep(action, post(action));
        continue;
      }
      pending_.before(action);
      if (is_compute(action.kind))
        compute(action);
      else
        hand(action);
    }
    pending_.finish();
    return right_;
  }

 private:
  struct Slot {
    std::array<std::int64_t, 1> input{}, output{}, output_gradient{}, input_gradient{};
  };
  /// The mark of a value: its virtual stage, its pass and its micro-batch.
  static std::int64_t mark(int number, bool gradient, int micro_batch) {
    return 1'000'000LL * (gradient ? 2 : 1) + 1000LL * number + micro_batch;
  }
  int number(const Action& action) const { return pipeline_.virtual_stage({communicator_.rank(), action.chunk}); }
  Slot& slot(int chunk, int index) { return slots_[{chunk, index}]; }

  dtrain::comm::Threads::Handle post(const Action& action) {
    Slot& here = slot(action.chunk, action.slot);
    const int peer = partner_of(pipeline_, action.kind, {communicator_.rank(), action.chunk}).stage;
    switch (action.kind) {
      case ActionKind::send_forward:
        return communicator_.send(std::span<const std::int64_t>(here.output), peer);
      case ActionKind::receive_forward:
        return communicator_.receive(std::span(here.input), peer);
      case ActionKind::send_backward:
        return communicator_.send(std::span<const std::int64_t>(here.input_gradient), peer);
      default:
        return communicator_.receive(std::span(here.output_gradient), peer);
    }
  }
  void hand(const Action& action) {
    Slot& from = slot(giving_chunk(action), action.from_slot);
    Slot& to = slot(action.chunk, action.slot);
    if (action.kind == ActionKind::hand_forward)
      to.input = from.output;
    else
      to.output_gradient = from.input_gradient;
  }
  void compute(const Action& action) {
    Slot& here = slot(action.chunk, action.slot);
    const int v = number(action);
    const int k = action.micro_batch;
    if (action.kind == ActionKind::forward) {
      right_ = right_ && (v == 0 || here.input[0] == mark(v - 1, false, k));
      work_(action);
      here.output[0] = mark(v, false, k);
    } else if (action.kind == ActionKind::backward_weight) {
      work_(action);
    } else {
      right_ = right_ && here.output[0] == mark(v, false, k) &&
               (v + 1 == pipeline_.virtual_stages() || here.output_gradient[0] == mark(v + 1, true, k));
      work_(action);
      here.input_gradient[0] = mark(v, true, k);
    }
  }

  dtrain::comm::Threads& communicator_;
  VirtualPipeline pipeline_;
  const Table& table_;
  Work work_;
  std::map<std::pair<int, int>, Slot> slots_;
  dtrain::parallel::PendingMessages<dtrain::comm::Threads::Handle> pending_;
  bool right_ = true;
};

template <class Work>
bool run(const std::vector<Table>& tables, Work work) {
  std::vector<char> right(tables.size(), 0);
  dtrain::tests::run_ranks(static_cast<int>(tables.size()), [&](dtrain::comm::Threads& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    right[rank] = Stage(communicator, tables, work).run() ? 1 : 0;
  });
  return std::all_of(right.begin(), right.end(), [](char each) { return each == 1; });
}

/// The idle share of a run in which a computation is a sleep of `unit` times its cost, and works as long as it slept.
double measured_bubble(const std::vector<Table>& tables, const Costs& costs, std::chrono::duration<double> unit) {
  std::atomic<std::int64_t> busy{0};  // nanoseconds
  const auto begin = Clock::now();
  REQUIRE(run(tables, [&](const Action& action) {
    const auto since = Clock::now();
    std::this_thread::sleep_for(unit * costs.of(action.kind));
    busy += std::chrono::nanoseconds(Clock::now() - since).count();
  }));
  const std::chrono::nanoseconds time = Clock::now() - begin;
  return 1 - static_cast<double>(busy) / (static_cast<double>(time.count()) * static_cast<double>(tables.size()));
}

}  // namespace

TEST_CASE("values arrive through real messages, for every schedule") {
  const auto nothing = [](const Action&) {};
  for (int p = 2; p <= 4; ++p)
    for (const int m : {1, 3, p, 2 * p + 1}) {
      CAPTURE(p);
      CAPTURE(m);
      CHECK(run(build_tables<GPipe>(p, m), nothing));
      CHECK(run(build_tables<OneForwardOneBackward>(p, m), nothing));
      CHECK(run(build_tables<ZeroBubbleH1>(p, m), nothing));
      CHECK(run(build_tables<ZeroBubbleV>(p, m), nothing));
      for (int chunks = 2; chunks <= 3; ++chunks) CHECK(run(build_tables<Interleaved1F1B>(p, m, chunks), nothing));
    }
  // More messages than are left unfinished at once.
  CHECK(run(build_tables<GPipe>(2, 100), nothing));
}

// The stages sleep instead of computing, so two cores are enough for four of them. On a busy machine a stage that
// sleeps too long keeps others waiting: of a few runs the one nearest to the prediction counts.
TEST_CASE("the measured bubble is the predicted one") {
  const auto check = [](const std::vector<Table>& tables, const Costs& costs) {
    const double predicted = bubble_of(tables, costs);
    double nearest = 1;
    for (int attempt = 0; attempt < 12 && std::abs(nearest - predicted) > 0.025; ++attempt) {
      const double measured = measured_bubble(tables, costs, std::chrono::milliseconds(8));
      if (std::abs(measured - predicted) < std::abs(nearest - predicted)) nearest = measured;
    }
    CHECK(nearest == doctest::Approx(predicted).epsilon(0.08).scale(1));
    return nearest;
  };
  constexpr Costs whole{1, 1, 1};
  constexpr Costs half{0.5, 0.5, 0.5};
  const double plain = check(build_tables<OneForwardOneBackward>(4, 6), whole);
  const double interleaved = check(build_tables<Interleaved1F1B>(4, 6, 2), half);
  const double h1 = check(build_tables<ZeroBubbleH1>(4, 6), whole);
  const double v = check(build_tables<ZeroBubbleV>(4, 6), half);
  CHECK(interleaved < plain);
  CHECK(h1 < plain);
  CHECK(v < plain);
}
