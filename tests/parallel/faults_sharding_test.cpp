// Faults of sharded training: norms of shards, buffers that are used again, copies that need no reduction, and layers
// that are computed again.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dtrain/core/view.hpp"
#include "dtrain/models/gpt.hpp"
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "dtrain/testing/equivalence.hpp"
#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
namespace nn = dtrain::nn;
using dt::DataParallel;
using dt::dynamic;
using dt::Index;
using dt::PipelineParallel;
using dt::ShardWithin;
using dt::Strategy;
using dt::Zero;

namespace {

using Five =
    nn::Sequence<nn::Named<"a", nn::Linear<5, 5>>, nn::Named<"b", nn::Linear<5, 5>>, nn::Named<"c", nn::Linear<5, 5>>,
                 nn::Named<"d", nn::Linear<5, 5>>, nn::Named<"e", nn::Linear<5, 5>>>;

template <class Program, class Value>
void put_gradients(Program& program, Value&& value) {
  auto& store = program.stage().store();
  for (const auto& parameter : store.map())
    store.for_gradient_runs(parameter, [&](Index at, Index whole, Index count) {
      for (Index i = 0; i < count; ++i)
        program.stage().gradients()[static_cast<std::size_t>(at + i)] = value(parameter.name, whole + i);
    });
}

// A bias that both tensor ranks hold, of norm 3, and a weight that is cut over tensor ranks, of norm 4.
template <class Data>
void check_norm() {
  using Two = nn::Sequence<nn::Named<"first", nn::Linear<4, 4>>, nn::Named<"second", nn::Linear<4, 4>>>;
  with_programs<Two, Strategy<Data, dt::TensorParallel<2>>>([](auto& program, auto&) {
    put_gradients(program, [](const std::string& name, Index element) {
      if (name == "second.bias") return element == 1 ? 3.0 : 0.0;
      return name == "second.weight" ? 1.0 : 0.0;
    });
    CHECK(program.gradient_norm() == 5.0);
  });
}

// One backward pass whose gradients are numbers of the unit and the rank, of which rank 1 comes late to each unit.
template <class S>
void check_slow_reductions(int ranks) {
  CAPTURE(S::describe());
  CAPTURE(ranks);
  std::atomic<Index> seen = 0;  // a rank may keep nothing but the padding between parameters
  dt::run_ranks<S>(
      [&](dt::Rank<S, dt::Host>& rank) {
        using Program = dt::parallel::Program<Five, S, double, dt::Host, dt::comm::Threads>;
        Program program(rank.device(), rank.axes(), 1);
        auto& chunk = *program.chunks()[0];
        const auto& plan = chunk.stage().plan();
        for (int step = 1; step <= 2; ++step) {
          chunk.restart(1, true);
          chunk.begin(dt::parallel::Pass::backward, plan.units());
          for (Index unit = plan.units().end - 1; unit >= plan.units().begin; --unit) {
            dt::parallel::UnitMemory<double, double> memory;
            chunk.enter(unit, memory);
            for (Index i = 0; i < plan.region_of(unit).size(); ++i)
              memory.gradients[i] += static_cast<double>((rank.index() + 1) * (unit + 1) * step);
            if (rank.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            chunk.leave(unit);
          }
          program.finish_gradients();
          const int all = ranks * (ranks + 1) / 2;
          for (const auto& parameter : chunk.stage().map()) {
            const auto expected = static_cast<double>(all * (parameter.unit + 1) * step);
            chunk.stage().store().for_gradient_runs(parameter, [&](Index at, Index, Index count) {
              seen += count;
              for (Index i = 0; i < count; ++i)
                CHECK(chunk.stage().gradients()[static_cast<std::size_t>(at + i)] == expected);
            });
          }
        }
      },
      {.ranks = ranks, .threads_per_rank = 1});
  const int replicas = S::sharding.within > 0 ? ranks / S::sharding.within : 1;
  CHECK(seen == 2 * replicas * 5 * (5 * 5 + 5));
}

/// Threads that count the sums over copies of tied parameters.
class CountingThreads : public dt::comm::Threads {
 public:
  static inline std::atomic<int> tied_sums = 0;

  explicit CountingThreads(dt::comm::Threads threads, bool tied = false)
      : dt::comm::Threads(std::move(threads)), tied_(tied) {}
  [[nodiscard]] std::optional<CountingThreads> split(int color, int key, std::string_view name) {
    auto part = dt::comm::Threads::split(color, key, name);
    if (!part) return std::nullopt;
    return CountingThreads(std::move(*part), name == "tied parameters");
  }
  template <class... Arguments>
  auto all_reduce(Arguments&&... arguments) {
    if (tied_) ++tied_sums;
    return dt::comm::Threads::all_reduce(std::forward<Arguments>(arguments)...);
  }

 private:
  bool tied_;
};

// Sums over copies in one step of a pipeline of two stages, all ranks together.
template <class Schedule>
int tied_sums_of_a_step() {
  using S = Strategy<PipelineParallel<2, Schedule>>;
  using Tied = dt::models::Gpt<dt::models::GptShape{.vocab = 6, .context = 2, .width = 4, .heads = 1, .layers = 2}>;
  CountingThreads::tied_sums = 0;
  dt::run_ranks<S>(
      [](dt::Rank<S, dt::Host>& rank) {
        CountingThreads world(*rank.world().split(0, rank.index(), "world"));
        dt::parallel::AxisCommunicators<S, CountingThreads> axes(world);
        dt::parallel::Program<Tied, S, double, dt::Host, CountingThreads> program(rank.device(), axes, 1);
        static_cast<void>(program.gradients({.samples = 4, .context = 2, .micro_batches = 2}, 0,
                                            [](dt::Range, auto inputs, std::span<std::int32_t> targets) {
                                              for (auto& input : inputs) input = 1;
                                              for (auto& target : targets) target = 2;
                                            }));
      },
      {.threads_per_rank = 1});
  return CountingThreads::tied_sums;
}

/// y = x / 2, and a count of how often that was computed.
template <Index Width>
struct CountedHalf {
  static constexpr nn::Features input = nn::features_of(Width);
  static constexpr nn::Features output = nn::features_of(Width);
  static constexpr bool saves_input = true;
  static constexpr nn::LayerKind kind = nn::LayerKind::activation;
  static inline std::atomic<int> forwards = 0;

  static constexpr nn::LayoutRule layouts(nn::Layout, nn::TensorAxis tensor) { return nn::row_wise(tensor); }
  static constexpr auto parameters(nn::LayoutRule) { return nn::no_parameters; }
  static constexpr double flops_per_row(Index) { return double(Width); }
  template <class Site, class T>
  static void forward(const Site&, dt::Matrix<const T> x, dt::Matrix<T> y) {
    ++forwards;
    for (std::size_t i = 0; i < x.flat().size(); ++i) y.flat()[i] = x.flat()[i] / T(2);
  }
  template <class Site, class T>
  static void backward_input(const Site&, dt::Matrix<const T> dy, dt::Matrix<T> dx) {
    for (std::size_t i = 0; i < dy.flat().size(); ++i) dx.flat()[i] = dy.flat()[i] / T(2);
  }
};

using Counted = nn::Sequence<
    nn::Named<"in", nn::Linear<3, 8>>,
    nn::Named<"blocks",
              nn::Repeat<4, nn::Residual<nn::LayerNorm<8>, nn::Named<"up", nn::Linear<8, 12>>, CountedHalf<12>,
                                         nn::Named<"down", nn::Linear<12, 8>>, nn::Dropout<8, nn::Probability{0.5}>>>>,
    nn::Named<"out", nn::Linear<8, 5>>>;

struct CountedRun {
  dt::testing::RecordedRun run;
  int training = 0;  ///< forward passes of the counted layer, of all training steps
};

constexpr int micro_batches = 3;
constexpr int steps = 3;

template <class S>
CountedRun counted_run() {
  CountedHalf<12>::forwards = 0;
  CountedRun result{.run = dt::testing::record_run<Counted, S>(
                        {.samples = 24, .context = 1, .micro_batches = micro_batches, .steps = steps})};
  // The evaluation at the end of a run computes nothing again.
  result.training = CountedHalf<12>::forwards - S::static_ranks * micro_batches * 4;
  return result;
}

}  // namespace

// fault B5
TEST_CASE("shards and what tensor ranks hold alike are counted once, under every level of ZeRO") {
  check_norm<DataParallel<2>>();
  check_norm<DataParallel<2, Zero<1>>>();
  check_norm<DataParallel<2, Zero<2>>>();
  check_norm<DataParallel<2, Zero<3>>>();
}

// fault D5, fault D1: five ranks and three share out regions of 40 elements
TEST_CASE("a unit's bucket is not filled again before its sum has been taken from it") {
  check_slow_reductions<Strategy<DataParallel<dynamic, Zero<2>>>>(2);
  check_slow_reductions<Strategy<DataParallel<dynamic, Zero<2>>>>(5);
  check_slow_reductions<Strategy<DataParallel<dynamic, Zero<3>>>>(3);
  check_slow_reductions<Strategy<DataParallel<dynamic, Zero<3, ShardWithin<2>>>>>(4);
}

// fault C20
TEST_CASE("copies of a tied parameter on one rank are summed without a message") {
  CHECK(tied_sums_of_a_step<dt::schedule::OneForwardOneBackward>() == 2);
  CHECK(tied_sums_of_a_step<dt::schedule::ZeroBubbleV>() == 0);
}

// fault E9
TEST_CASE("gradients are the same to the bit where blocks are computed again, each once") {
  using dt::testing::compare_runs;
  const CountedRun kept = counted_run<dt::Serial>();
  CHECK(kept.training == steps * micro_batches * 4);
  const auto check = [&](const CountedRun& again, int computed) {
    CAPTURE(again.run.strategy);
    CHECK(again.training == steps * micro_batches * computed);
    CHECK_NOTHROW(static_cast<void>(compare_runs(kept.run, again.run, 0.0)));
  };
  check(counted_run<Strategy<dt::Recompute<dt::recompute::Full>>>(), 4 + 4);
  check(counted_run<Strategy<dt::Recompute<dt::recompute::EveryBlock<2>>>>(), 4 + 2);
  check(counted_run<Strategy<dt::Recompute<dt::recompute::NormsAndActivations>>>(), 4 + 4);
}

TEST_CASE("shards and stages compute blocks again once, too") {
  using S = Strategy<DataParallel<2, Zero<3>>, PipelineParallel<2>, dt::Recompute<dt::recompute::Full>>;
  // Each data rank has its half of every micro-batch.
  CHECK(counted_run<S>().training + 2 * micro_batches * 4 == 2 * steps * micro_batches * (4 + 4));
}
