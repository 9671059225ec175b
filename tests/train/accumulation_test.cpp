#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "dtrain/models/gpt.hpp"
#include "dtrain/testing/recorded_run.hpp"

namespace {

using namespace dtrain;
using Model =
    models::Gpt<models::GptShape{.vocab = 32, .context = 8, .width = 16, .heads = 2, .layers = 2, .dropout = 0.2}>;
using Whole = std::map<std::string, std::map<Index, double>>;

struct Outcome {
  double loss = 0.0;
  Index tokens = 0;
  double norm = 0.0;
  Whole gradients;  ///< as far as this rank keeps them
};

// The batch of samples [0, sum of parts), given in parts.
template <class S, class Check>
void run(const std::vector<Index>& parts, Check&& check) {
  run_ranks<S>([&](Rank<S, Host>& rank) {
    Trainer<Model, S, AdamW, double> trainer(rank, {.learning_rate = 1e-2, .clip = 0.0, .seed = 3});
    const testing::RunOptions options{.context = 8, .seed = 5};
    for (int step = 0; step < 2; ++step) {
      Index first = 0;
      train::StepReport report;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const auto feed = [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
          testing::detail::fill_batch(options, 32, step, Range{first + samples.begin, first + samples.end}, inputs,
                                      targets);
        };
        const parallel::BatchShape shape{.samples = parts[p], .context = 8, .micro_batches = 2};
        // [snippet accumulate]
        if (p + 1 < parts.size())
          trainer.accumulate(shape, feed);
        else
          report = trainer.step(shape, feed);
        // [end snippet]
        first += parts[p];
      }
      CHECK(report.tokens == 8 * first);
      Outcome outcome{report.loss, report.counted_tokens, report.gradient_norm, {}};
      const auto& store = trainer.program().stage().store();
      const auto gradients = trainer.program().stage().gradients();
      for (const auto& parameter : store.map())
        store.for_gradient_runs(parameter, [&](Index at, Index whole, Index count) {
          for (Index i = 0; i < count; ++i)
            outcome.gradients[parameter.name][whole + i] = gradients[static_cast<std::size_t>(at + i)];
        });
      check(step, rank.index(), outcome);
    }
  });
}

std::vector<Outcome> at_once() {
  std::vector<Outcome> steps;
  run<Serial>({24}, [&](int, int, const Outcome& outcome) { steps.push_back(outcome); });
  return steps;
}

template <class S>
void compare(const std::vector<Outcome>& expected, const std::vector<Index>& parts) {
  run<S>(parts, [&](int step, int rank, const Outcome& outcome) {
    const Outcome& whole = expected[static_cast<std::size_t>(step)];
    CAPTURE(S::describe());
    CAPTURE(step);
    CAPTURE(rank);
    CHECK(outcome.tokens == whole.tokens);
    CHECK(std::abs(outcome.loss - whole.loss) <= 1e-12 * whole.loss);
    CHECK(std::abs(outcome.norm - whole.norm) <= 1e-12 * whole.norm);
    double worst = 0.0;
    std::size_t compared = 0;
    for (const auto& [name, values] : outcome.gradients)
      for (const auto& [element, value] : values) {
        worst = std::max(worst, std::abs(value - whole.gradients.at(name).at(element)));
        ++compared;
      }
    CHECK(compared > 100);
    CHECK(worst <= 1e-14);
  });
}

}  // namespace

// fault A8
TEST_CASE("batches that are accumulated give the gradients of one batch of them all") {
  const std::vector<Outcome> expected = at_once();
  compare<Serial>(expected, {4, 12, 8});
  compare<Strategy<DataParallel<2>>>(expected, {8, 16});
  compare<Strategy<DataParallel<2, Zero<1>>>>(expected, {8, 16});
  compare<Strategy<DataParallel<2, Zero<2>>>>(expected, {4, 4, 16});
  compare<Strategy<DataParallel<2>, PipelineParallel<2>>>(expected, {8, 16});
}

TEST_CASE("the data axis reduces gradients once, however many batches were accumulated") {
  using S = Strategy<DataParallel<2>>;
  run_ranks<S>([&](Rank<S, Host>& rank) {
    Trainer<Model, S, AdamW, double> trainer(rank, {});
    const testing::RunOptions options{.context = 8, .seed = 5};
    const parallel::BatchShape shape{.samples = 4, .context = 8, .micro_batches = 1};
    const auto feed = [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
      testing::detail::fill_batch(options, 32, 0, samples, inputs, targets);
    };
    auto& data = rank.axes().template on<parallel::axes::Data>();
    const auto before = data.traffic().of(comm::Operation::all_reduce);
    trainer.accumulate(shape, feed);
    trainer.accumulate(shape, feed);
    CHECK(data.traffic().of(comm::Operation::all_reduce).operations == before.operations);
    trainer.step(shape, feed);
    // The count of targets, and the gradients in one bucket.
    CHECK(data.traffic().of(comm::Operation::all_reduce).operations == before.operations + 2);
  });
}

TEST_CASE("a batch of another context is not added to the batches before it") {
  run_ranks<Serial>([&](Rank<Serial, Host>& rank) {
    Trainer<Model, Serial, AdamW, double> trainer(rank, {});
    const auto feed = [](Range, auto inputs, std::span<std::int32_t> targets) {
      for (auto& input : inputs) input = 1;
      for (auto& target : targets) target = 1;
    };
    trainer.accumulate({.samples = 2, .context = 8, .micro_batches = 1}, feed);
    CHECK_THROWS_WITH_AS(trainer.step({.samples = 2, .context = 4, .micro_batches = 1}, feed),
                         "dtrain: a batch with a context of 4 tokens cannot be added to batches of 8.",
                         ConfigurationError);
  });
}
