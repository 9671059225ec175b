// Losses and gradients that are no numbers, batches that count nothing, ranks that disagree on the number of steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;
using namespace std::chrono_literals;

// A feature of `size` in the samples from `first` on, and class 1 for all.
auto constant_feed(float size, Index first = 0) {
  return [=](Range samples, std::span<float> inputs, std::span<std::int32_t> targets) {
    std::fill(inputs.begin(), inputs.end(), 0.0f);
    for (std::size_t i = 0; i < inputs.size(); i += 2)
      if (samples.begin + static_cast<Index>(i / 2) >= first) inputs[i] = size;
    std::fill(targets.begin(), targets.end(), 1);
  };
}

// What each rank throws at step 2 when a weight of rank `poisoned` has become NaN.
template <class S>
std::vector<std::string> poisoned_run(int poisoned) {
  std::vector<std::string> sentences(static_cast<std::size_t>(S::static_ranks));
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<TinyMlp, S> trainer(rank);
        const auto shape = trainer.batch_shape(4, 1, 2);
        trainer.step(shape, constant_feed(1.0f));
        auto parameters = trainer.program().stage().parameters();
        if (rank.index() == poisoned) parameters[0] = std::numeric_limits<float>::quiet_NaN();
        const auto before = copy_of(parameters);
        sentences[static_cast<std::size_t>(rank.index())] =
            sentence_of<NumericalError>([&] { trainer.step(shape, constant_feed(1.0f)); });
        CHECK(std::equal(before.begin() + 1, before.end(), parameters.begin() + 1));
        CHECK(trainer.clock() == optim::TrainingClock{.updates = 1, .skipped = 0});
      },
      {.threads_per_rank = 1});
  return sentences;
}

template <class S>
void check_poisoned(int poisoned, int named) {
  CAPTURE(S::describe());
  for (const std::string& sentence : poisoned_run<S>(poisoned))
    CHECK(sentence == concatenate("dtrain: the loss of step 2 is nan; rank ", named,
                                  " is the first to compute it so. Nothing was updated. Lower the learning rate (now "
                                  "0.001) or look at the data of this step."));
}

TEST_CASE("a loss that is no number stops all ranks, which name the step and the first rank that computed it") {
  check_poisoned<Serial>(0, 0);
  check_poisoned<Data2>(0, 0);
  check_poisoned<Data2>(1, 1);
  // Partial sums carry it to both tensor ranks, of which the first counts the loss.
  check_poisoned<Tensor2>(1, 0);
  // The last stage computes the loss.
  check_poisoned<Pipeline2>(0, 1);
  check_poisoned<Pipeline2>(1, 1);
}

TEST_CASE("the launch ends with the sentence of the loss") {
  const std::string sentence = sentence_of<NumericalError>([] {
    run_ranks<Data2>([](auto& rank) {
      train::Trainer<TinyMlp, Data2> trainer(rank);
      trainer.step(trainer.batch_shape(4, 1), constant_feed(std::numeric_limits<float>::infinity(), 2));
    });
  });
  CHECK(sentence.find("the loss of step 1 is nan; rank 1 is the first") != std::string::npos);
}

// Weights with which an input of 1e30 makes a finite loss and, in one element only, an infinite gradient: hidden
// element 0 is gelu(1e-30 x), the loss's gradient reaches it times 1e30, and its weight's gradient is that times x.
double overflowing_weight(const std::string& name, Index element) {
  if (element != 0) return 0.0;
  return name == "input.up.weight" ? 1e-30 : name == "input.down.weight" ? 1e30 : name == "output.weight" ? 1.0 : 0.0;
}

double tiny_rate(Index step) { return 1e-33 / static_cast<double>(step + 1); }

template <class S>
void check_skip() {
  CAPTURE(S::describe());
  std::vector<int> infinite(static_cast<std::size_t>(S::static_ranks), 0);
  std::atomic<int> moved{0};  // ranks with something that a skipped step could spoil
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<TinyMlp, S> trainer(rank, {.learning_rate = tiny_rate});
        set_weights(trainer, overflowing_weight);
        const auto shape = trainer.batch_shape(4, 1, 2);
        auto& stage = trainer.program().stage();
        auto& state = trainer.optimizer_states()[0];
        const StepReport first = trainer.step(shape, constant_feed(1e-3f));
        CHECK_FALSE(first.skipped);
        const auto weights = copy_of(stage.parameters());
        const std::array moments{copy_of(state.state(0)), copy_of(state.state(1))};
        moved += std::any_of(moments[1].begin(), moments[1].end(), [](float m) { return m != 0.0f; }) ? 1 : 0;

        // The upper half of the batch: rank 1's, where two share it.
        const StepReport skipped = trainer.step(shape, constant_feed(1e30f, 2));
        CHECK(skipped.skipped);
        CHECK(skipped.skipped_so_far == 1);
        CHECK(std::isfinite(skipped.loss));
        CHECK_FALSE(std::isfinite(skipped.gradient_norm));
        infinite[static_cast<std::size_t>(rank.index())] = static_cast<int>(std::count_if(
            stage.gradients().begin(), stage.gradients().end(), [](float g) { return !std::isfinite(g); }));
        CHECK(copy_of(stage.parameters()) == weights);
        CHECK(copy_of(state.state(0)) == moments[0]);
        CHECK(copy_of(state.state(1)) == moments[1]);
        CHECK(trainer.clock() == optim::TrainingClock{.updates = 1, .skipped = 1});

        const StepReport third = trainer.step(shape, constant_feed(1e-3f));
        CHECK_FALSE(third.skipped);
        CHECK(third.skipped_so_far == 1);
        CHECK(third.step == 3);
        CHECK(std::array{first.learning_rate, skipped.learning_rate, third.learning_rate} ==
              std::array{tiny_rate(0), tiny_rate(1), tiny_rate(1)});
        CHECK(trainer.clock().schedule_step() == 2);
      },
      {.threads_per_rank = 1});
  CHECK(moved >= 1);
  // One element: of one rank's shard or stage, or of the sum over data ranks, which both hold.
  CHECK(std::count(infinite.begin(), infinite.end(), 1) == S::Data::degree);
  CHECK(std::count(infinite.begin(), infinite.end(), 0) == S::static_ranks - S::Data::degree);
}

TEST_CASE("gradients that are not finite on one rank skip the step on all, and nothing moves but the data") {
  // fault B8
  // fault F4
  check_skip<Serial>();
  check_skip<Data2>();
  check_skip<Tensor2>();
  check_skip<Pipeline2>();
}

TEST_CASE("a batch that counts no target is skipped: decay alone moves no weight") {
  run_ranks<Data2>([](auto& rank) {
    train::Trainer<TinyMlp, Data2> trainer(rank, {.optimizer = {.weight_decay = 0.5}});
    const auto shape = trainer.batch_shape(4, 1);
    const auto before = copy_of(trainer.program().stage().parameters());
    const StepReport report = trainer.step(shape, [](Range, std::span<float> inputs, std::span<std::int32_t> targets) {
      std::fill(inputs.begin(), inputs.end(), 1.0f);
      std::fill(targets.begin(), targets.end(), data::ignore_index);
    });
    CHECK(report.skipped);
    CHECK(report.counted_tokens == 0);
    CHECK(report.tokens == 4);
    CHECK(report.loss == 0.0);
    CHECK(trainer.clock() == optim::TrainingClock{.updates = 0, .skipped = 1});
    CHECK(copy_of(trainer.program().stage().parameters()) == before);
    // A rank whose share counts nothing takes part all the same.
    const StepReport uneven =
        trainer.step(shape, [](Range samples, std::span<float> inputs, std::span<std::int32_t> targets) {
          std::fill(inputs.begin(), inputs.end(), 1.0f);
          std::fill(targets.begin(), targets.end(), samples.begin == 0 ? 1 : data::ignore_index);
        });
    CHECK_FALSE(uneven.skipped);
    CHECK(uneven.counted_tokens == 2);
  });
}

TEST_CASE("ranks that were given different seeds are refused before they train apart") {
  const std::string sentence = sentence_of<ConfigurationError>([] {
    run_ranks<Data2>([](auto& rank) {
      const train::Trainer<TinyMlp, Data2> trainer(rank, {.seed = static_cast<std::uint64_t>(3 + rank.index())});
    });
  });
  CHECK(sentence == "dtrain: the seed is 3 on rank 0 and 4 on rank 1; give all ranks the same.");
}

TEST_CASE("ranks that were given batches of different shapes all refuse them, and nothing moves") {
  using Shape = parallel::BatchShape;
  const auto refusals = [](Shape first, Shape second) {
    std::vector<std::string> sentences(2);
    run_ranks<Data2>([&](auto& rank) {
      train::Trainer<TinyMlp, Data2> trainer(rank);
      const auto before = copy_of(trainer.program().stage().parameters());
      sentences[static_cast<std::size_t>(rank.index())] =
          sentence_of<ConfigurationError>([&] { trainer.step(rank.is_first() ? first : second, constant_feed(1.0f)); });
      CHECK((copy_of(trainer.program().stage().parameters()) == before) == !(first == second));
      CHECK((trainer.clock() == optim::TrainingClock{}) == !(first == second));
    });
    CHECK(sentences[0] == sentences[1]);
    return sentences[0];
  };
  CHECK(refusals({.samples = 4}, {.samples = 8}) ==
        "dtrain: rank 0 was given a batch of 4 samples of 1 tokens in 1 micro-batches, rank 1 one of 8 samples of 1 "
        "tokens in 1 micro-batches; give all ranks the same.");
  CHECK(refusals({.samples = 4}, {.samples = 4, .micro_batches = 2}).find("in 2 micro-batches") != std::string::npos);
  CHECK(refusals({.samples = 4, .context = 2}, {.samples = 8}).find("4 samples of 2 tokens") != std::string::npos);
  CHECK(refusals({.samples = 8}, {.samples = 8}) == "(nothing thrown)");
}

TEST_CASE("ranks with an uneven number of batches end with an error that names the one that is missing") {
  // fault F11
  const auto begin = std::chrono::steady_clock::now();
  const std::string sentence = sentence_of<TimeoutError>([] {
    run_ranks<Data2>(
        [](auto& rank) {
          train::Trainer<TinyMlp, Data2> trainer(rank);
          const int batches = rank.index() == 0 ? 3 : 2;
          for (int b = 0; b < batches; ++b) trainer.step(trainer.batch_shape(4, 1), constant_feed(1.0f));
        },
        {.deadline = 300ms});
  });
  INFO(sentence);
  CHECK(sentence.find("rank 1") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
}

}  // namespace
