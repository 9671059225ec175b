// Faults of gradient reduction: order of buckets, ties over stages, disagreeing ranks, and when it happens.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "dtrain/core/view.hpp"
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/gradient_buckets.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
namespace nn = dtrain::nn;
using dt::DataParallel;
using dt::Index;
using dt::PipelineParallel;
using dt::Strategy;

namespace {

using Data2 = Strategy<DataParallel<2>>;
using Two = nn::Sequence<nn::Named<"first", nn::Linear<4, 4>>, nn::Named<"second", nn::Linear<4, 4>>>;
using Buckets = dt::parallel::GradientBuckets<DataParallel<2>, dt::comm::Threads>;

// 5 pieces of 3 elements, from the end to the beginning.
std::vector<dt::Range> pieces() {
  std::vector<dt::Range> result;
  for (Index end = 15; end > 0; end -= 3) result.push_back({end - 3, end});
  return result;
}

}  // namespace

// fault D1
TEST_CASE("shares of equal padded size: the last ranks hold less, or nothing") {
  CHECK(dt::padded_share(266240, 768, 348, 764).size() == 348);
  CHECK(dt::padded_share(266240, 768, 348, 765).size() == 20);
  CHECK(dt::padded_share(266240, 768, 348, 766).size() == 0);
  CHECK(dt::padded_share(266240, 768, 348, 767).size() == 0);
  Index next = 0;
  for (Index rank = 0; rank < 768; ++rank) {
    const dt::Range share = dt::padded_share(266240, 768, 348, rank);
    CHECK(share.begin == next);
    next = share.end;
  }
  CHECK(next == 266240);
}

// fault D4
TEST_CASE("buckets are reduced in their own order, whichever rank's gradients are ready first") {
  for (const Index bucket : {1, 6, 100}) {
    dt::run_ranks<Data2>([&](auto& rank) {
      std::vector<double> gradients(15);
      for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = static_cast<double>(i) + (rank.index() == 0 ? 0.0 : 100.0);
      Buckets buckets(pieces(), bucket);
      for (int step = 0; step < 2; ++step) {
        std::vector<double> region = gradients;
        buckets.restart();
        for (std::size_t i = 0; i < 5; ++i)
          buckets.complete(rank.index() == 0 ? i : 4 - i, std::span(region), rank.world());
        buckets.finish();
        for (std::size_t i = 0; i < region.size(); ++i) CHECK(region[i] == 2.0 * static_cast<double>(i) + 100.0);
      }
    });
  }
}

// fault D5
TEST_CASE("gradients are not used before a slow reduction has ended") {
  dt::run_ranks<Data2>([](auto& rank) {
    std::vector<double> region(15, 0.0);
    Buckets buckets(pieces(), 3);
    for (int step = 1; step <= 3; ++step) {
      for (double& element : region) element = step;
      buckets.restart();
      for (std::size_t i = 0; i < 5; ++i) {
        if (rank.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        buckets.complete(i, std::span(region), rank.world());
      }
      buckets.finish();
      for (const double element : region) CHECK(element == 2.0 * step);
    }
  });
}

TEST_CASE("a bucket that is completed twice, or never, is refused") {
  dt::Host host;
  dt::comm::Self self;
  dt::parallel::GradientBuckets<DataParallel<1>, dt::comm::Self> buckets(pieces(), 1);
  std::vector<double> region(15);
  buckets.restart();
  buckets.complete(0, std::span(region), self);
  CHECK_THROWS_AS(buckets.complete(0, std::span(region), self), dt::Error);
  CHECK_THROWS_AS(buckets.finish(), dt::Error);
}

// fault D7
TEST_CASE("ranks that hold different parameters are told, each of them, before anything is reduced") {
  using Other = nn::Sequence<nn::Named<"first", nn::Linear<4, 4>>, nn::Named<"second", nn::Linear<4, 6>>>;
  std::array<std::string, 2> sentences;
  CHECK_THROWS(dt::run_ranks<Data2>([&](auto& rank) {
    try {
      if (rank.index() == 0)
        dt::parallel::Program<Two, Data2, double, dt::Host, dt::comm::Threads>(rank.device(), rank.axes(), 1);
      else
        dt::parallel::Program<Other, Data2, double, dt::Host, dt::comm::Threads>(rank.device(), rank.axes(), 1);
    } catch (const dt::Error& error) {
      sentences[static_cast<std::size_t>(rank.index())] = error.what();
      throw;
    }
  }));
  for (const std::string& sentence : sentences) {
    CAPTURE(sentence);
    CHECK(sentence.find("second.weight") != std::string::npos);
    CHECK(sentence.find("rank 1") != std::string::npos);
    CHECK(sentence.find("[6, 4]") != std::string::npos);
  }
}

// Adds rank + 1 to every gradient, as one backward pass would, and completes the sums.
template <class S>
void check_tied_sums() {
  using Tied = dt::models::Gpt<dt::models::GptShape{.vocab = 6, .context = 2, .width = 4, .heads = 1, .layers = 1}>;
  dt::run_ranks<S>([](dt::Rank<S, dt::Host>& rank) {
    using Program = dt::parallel::Program<Tied, S, double, dt::Host, dt::comm::Threads>;
    Program program(rank.device(), rank.axes(), 1);
    auto& chunk = *program.chunks()[0];
    auto& plan = chunk.stage().plan();
    chunk.restart(1, true);
    chunk.begin(dt::parallel::Pass::backward, plan.units());
    for (Index unit = plan.units().end - 1; unit >= plan.units().begin; --unit) {
      dt::parallel::UnitMemory<double, double> memory;
      chunk.enter(unit, memory);
      for (Index i = 0; i < plan.region_of(unit).size(); ++i) memory.gradients[i] += rank.index() + 1.0;
      if (memory.tied_gradient != nullptr)
        for (Index i = 0; i < 6 * 4; ++i) memory.tied_gradient[i] += rank.index() + 1.0;
      chunk.leave(unit);
    }
    program.finish_gradients();
    // Ranks 0 and 1 are the data ranks of the first stage, 2 and 3 those of the last.
    const double own = rank.index() < 2 ? 1.0 + 2.0 : 3.0 + 4.0;
    Index seen = 0;
    for (const auto& parameter : chunk.stage().map())
      chunk.stage().store().for_gradient_runs(parameter, [&](Index at, Index, Index count) {
        seen += count;
        for (Index i = 0; i < count; ++i)
          CHECK(chunk.stage().gradients()[static_cast<std::size_t>(at + i)] ==
                (parameter.name == "token_embedding.weight" ? 2 * 5.0 : own));
      });
    CHECK(seen > 0);
  });
}

// fault C19, fault C20, fault C21
TEST_CASE("a tied parameter's two copies get the sum of both stages and all data ranks, sharded or not") {
  using Pipeline = PipelineParallel<2>;
  check_tied_sums<Strategy<DataParallel<2>, Pipeline>>();
  check_tied_sums<Strategy<DataParallel<2, dt::Zero<1>>, Pipeline>>();
  check_tied_sums<Strategy<DataParallel<2, dt::Zero<2>>, Pipeline>>();
  check_tied_sums<Strategy<DataParallel<2, dt::Zero<3>>, Pipeline>>();
}

// fault E7
TEST_CASE("each stage reduces its gradients once a step, however many micro-batches there are") {
  const auto check = [](auto& program, auto& rank) {
    Batch batch;
    for (int i = 0; i < 16; ++i) batch.add({1.0, 2.0, 3.0, static_cast<double>(i)}, i % 4);
    auto& data = rank.axes().template on<dt::parallel::axes::Data>();
    for (const int micro_batches : {1, 2, 4, 8}) {
      const auto before = data.traffic().of(dt::comm::Operation::all_reduce);
      run_batch(program, batch, micro_batches);
      const auto after = data.traffic().of(dt::comm::Operation::all_reduce);
      // One bucket; the last stage also counts the targets.
      const Index gradient_bytes = program.stage().plan().parameter_size() * Index{sizeof(double)};
      const Index count = program.stage().last() ? 1 : 0;
      CHECK(after.operations - before.operations == 1 + count);
      CHECK(after.bytes - before.bytes == gradient_bytes + 8 * count);
    }
  };
  with_programs<Two, Strategy<DataParallel<2>, PipelineParallel<2>>>(check);
  with_programs<Two, Strategy<DataParallel<2>, PipelineParallel<2, dt::schedule::GPipe>>>(check);
}
