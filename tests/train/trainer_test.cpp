// Whole runs and single steps of a trainer: how they move weights, what they report and refuse.
#include "dtrain/train/trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/data/feature_array.hpp"
#include "dtrain/optim/sgd.hpp"
#include "dtrain/train/launch.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

// The class is the sign of the first feature.
data::FeatureArray signs(Index samples = 32) {
  data::FeatureSamples made;
  for (Index i = 0; i < samples; ++i) {
    const double x = std::sin(static_cast<double>(3 * i + 1));
    made.inputs.push_back(x);
    made.inputs.push_back(std::cos(static_cast<double>(5 * i)));
    made.targets.push_back(x > 0.0 ? 1 : 0);
  }
  return {{.features = 2, .classes = 2}, made, made};
}

template <class Body>
void run_one(Body body) {
  run_ranks<Serial>(body, {.threads_per_rank = 1});
}

TEST_CASE("steps of the caller's own loop are those of fit") {
  run_one([](auto& rank) {
    const data::FeatureArray source = signs();
    train::Trainer<TinyMlp, Serial, AdamW, double> fitted(rank, {.seed = 7});
    fitted.fit(source, {.steps = 5, .batch = 12, .micro_batches = 3});
    train::Trainer<TinyMlp, Serial, AdamW, double> fed(rank, {.seed = 7});
    const auto shape = fed.batch_shape(12, 1, 3);
    data::Position position;
    for (int s = 0; s < 5; ++s) {
      const StepReport report =
          fed.step(shape, [&](Range samples, std::span<double> inputs, std::span<std::int32_t> targets) {
            source.fill_training(7, position, samples, data::FeatureBatch<double>{inputs, targets, samples.size(), 2});
          });
      CHECK(report.step == s + 1);
      CHECK(report.tokens == 12);
      position = position.advanced(12, source.training_samples());
    }
    CHECK(copy_of(fed.program().stage().parameters()) == copy_of(fitted.program().stage().parameters()));
    CHECK(fitted.position() == position);
  });
}

TEST_CASE("accumulation over micro-batches gives the gradients of the whole batch") {
  run_one([](auto& rank) {
    const data::FeatureArray source = signs();
    const auto after = [&](int micro_batches) {
      train::Trainer<TinyMlp, Serial, AdamW, double> trainer(rank);
      const StepReport report = trainer.fit(source, {.steps = 3, .batch = 12, .micro_batches = micro_batches});
      auto numbers = copy_of(trainer.program().stage().parameters());
      numbers.push_back(report.loss);
      numbers.push_back(report.gradient_norm);
      return numbers;
    };
    const auto whole = after(1);
    for (const int micro_batches : {2, 3, 6, 12}) {
      CAPTURE(micro_batches);
      const auto parts = after(micro_batches);
      for (std::size_t i = 0; i < whole.size(); ++i) REQUIRE(parts[i] == doctest::Approx(whole[i]).epsilon(1e-12));
    }
  });
}

// The rates that a run of `steps` steps reports.
template <class Trainer>
std::vector<double> rates_of(Trainer& trainer, Index steps) {
  std::vector<double> rates;
  trainer.fit(signs(), {.steps = steps, .batch = 4, .on_step = [&](const StepReport& report) {
                          rates.push_back(report.learning_rate);
                        }});
  return rates;
}

TEST_CASE("the learning rate is a number, a schedule over the run, or the caller's function") {
  run_one([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, AdamW, double>;
    Trainer constant(rank, {.learning_rate = 3e-3});
    CHECK(rates_of(constant, 3) == std::vector<double>{3e-3, 3e-3, 3e-3});
    Trainer cosine(rank, {.learning_rate = Cosine{.peak = 0.1, .warmup = 2, .minimum = 0.01}});
    const auto rates = rates_of(cosine, 6);
    const Cosine expected{.peak = 0.1, .warmup = 2, .decay_steps = 6, .minimum = 0.01};
    for (Index s = 0; s < 6; ++s) CHECK(rates[static_cast<std::size_t>(s)] == expected(s));
    Trainer function(rank, {.learning_rate = [](Index step) { return 0.1 / static_cast<double>(step + 1); }});
    CHECK(rates_of(function, 3) == std::vector<double>{0.1, 0.1 / 2, 0.1 / 3});
  });
}

TEST_CASE("a schedule that spans the run is resolved by each run, and refused where nobody knows its length") {
  run_one([](auto& rank) {
    train::Trainer<TinyMlp, Serial, AdamW, double> trainer(rank,
                                                           {.learning_rate = LinearDecay{.peak = 0.1, .minimum = 0.0}});
    CHECK(sentence_of<ConfigurationError>([&] {
            trainer.step(signs(), trainer.batch_shape(4, 1));
          }).find("the length of the run is not known") != std::string::npos);
    // A run that ends by an exception leaves nothing of its length behind.
    CHECK_THROWS_AS(
        trainer.fit(signs(),
                    {.steps = 2, .batch = 4, .on_step = [](const StepReport&) { throw std::runtime_error("full"); }}),
        std::runtime_error);
    CHECK(trainer.clock().updates == 1);
    CHECK(rates_of(trainer, 3) == std::vector<double>{0.1 * 0.75, 0.1 * 0.5, 0.1 * 0.25});
  });
}

TEST_CASE("gradient descent moves every weight against its gradient") {
  run_one([](auto& rank) {
    train::Trainer<TinyMlp, Serial, Sgd, double> trainer(rank, {.learning_rate = 0.5, .clip = 0.0});
    CHECK(trainer.memory().optimizer >= trainer.program().stage().plan().parameter_size() * 8);
    const auto before = copy_of(trainer.program().stage().parameters());
    trainer.fit(signs(), {.steps = 1, .batch = 4});
    const auto gradients = trainer.program().stage().gradients();
    const auto after = trainer.program().stage().parameters();
    for (std::size_t i = 0; i < before.size(); ++i)
      REQUIRE(after[i] == doctest::Approx(before[i] - 0.5 * gradients[i]).epsilon(1e-15));
  });
}

TEST_CASE("the guide's trainer") {
  namespace dt = dtrain;
  using Model = TinyMlp;
  using Strategy = dt::Serial;
  run_one([](auto& rank) {
    // [snippet options]
    dt::Trainer<Model, Strategy, dt::Sgd, double> trainer(
        rank, {.learning_rate = dt::WarmupStableDecay{.peak = 0.1, .warmup = 2, .annealing_steps = 3},
               .optimizer = {.momentum = 0.9, .nesterov = true, .weight_decay = 1e-4},
               .clip = 0.5,
               .seed = 3});
    // [end snippet]
    const auto rates = rates_of(trainer, 8);
    CHECK(rates.front() == 0.0);
    CHECK(rates[2] == 0.1);
    CHECK(rates[5] == 0.1);
    CHECK(rates[7] < 0.1);
  });
}

TEST_CASE("clipping scales the update by the global norm, which is reported as it was") {
  run_one([](auto& rank) {
    const auto moved = [&](double clip) {
      train::Trainer<TinyMlp, Serial, Sgd, double> trainer(rank, {.learning_rate = 1.0, .clip = clip});
      const auto before = copy_of(trainer.program().stage().parameters());
      const StepReport report = trainer.fit(signs(), {.steps = 1, .batch = 4});
      double squares = 0.0;
      for (std::size_t i = 0; i < before.size(); ++i)
        squares += std::pow(trainer.program().stage().parameters()[i] - before[i], 2);
      return std::pair(report.gradient_norm, std::sqrt(squares));
    };
    const auto [norm, free] = moved(0.0);
    CHECK(free == doctest::Approx(norm).epsilon(1e-12));
    const auto [reported, clipped] = moved(norm / 4);
    CHECK(reported == norm);
    CHECK(clipped == doctest::Approx(norm / 4).epsilon(1e-12));
  });
}

TEST_CASE("what cannot be trained is refused before anything is allocated or moved") {
  run_one([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, AdamW, double>;
    const auto refused = [&](typename Trainer::Options options) {
      return sentence_of<ConfigurationError>([&] { Trainer trainer(rank, options); });
    };
    CHECK(refused({.clip = -1.0}) ==
          "dtrain: gradients cannot be clipped to a norm of -1; give a number of at least 0, where 0 turns clipping "
          "off.");
    CHECK(refused({.clip = std::nan("")}).find("cannot be clipped") != std::string::npos);
    CHECK(refused({.optimizer = {.beta1 = 1.0}}) == "AdamW: beta1 is 1, but must lie in [0, 1)");
    CHECK(rank.device().live_bytes() == 0);
    Trainer trainer(rank);
    const Index bytes = rank.device().live_bytes();
    const auto run = [&](const data::FeatureArray& source, const FitOptions& options) {
      return sentence_of<ConfigurationError>([&] { trainer.fit(source, options); });
    };
    CHECK(run(signs(), {.steps = -1, .batch = 4}) == "dtrain: a run of -1 steps was asked for; give 0 or more.");
    CHECK(run(signs(), {.steps = 1, .batch = 0}) ==
          "dtrain: a batch of 0 samples of 1 tokens in 1 micro-batches cannot be trained on; all three must be at "
          "least 1.");
    CHECK(run(signs(), {.steps = 1, .batch = 5, .micro_batches = 2}) ==
          "dtrain: a batch of 5 samples does not divide over 1 data-parallel ranks x 2 micro-batches; choose a "
          "multiple of 2.");
    const data::FeatureArray wide({.features = 3, .classes = 2}, {.inputs = {1, 2, 3}, .targets = {1}});
    CHECK(run(wide, {.steps = 1, .batch = 4}) == "dtrain: the data has 3 features per sample, but the model takes 2.");
    CHECK(sentence_of<ConfigurationError>([&] { trainer.step(signs(), trainer.batch_shape(4, 2)); }) ==
          "dtrain: the batch has a context of 2, but a sample of the data 1 row; make the shape by "
          "batch_shape(samples, 1).");
    CHECK(sentence_of<ConfigurationError>([&] {
            trainer.evaluate(signs(), trainer.batch_shape(4, 2));
          }).find("a context of 2") != std::string::npos);
    CHECK(rank.device().live_bytes() == bytes);
    CHECK(trainer.clock() == optim::TrainingClock{});
  });
}

TEST_CASE("logits that the model does not have are refused") {
  run_one([](auto& rank) {
    train::Trainer<TinyMlp, Serial, AdamW, double> trainer(rank);
    std::vector<double> two(2);
    const auto logits = [&](Index context, Index row, std::span<double> result) {
      trainer.program().logits(context, row, [](std::span<double> x) { std::fill(x.begin(), x.end(), 1.0); }, result);
    };
    CHECK(sentence_of<ConfigurationError>([&] { logits(0, 0, two); }) ==
          "dtrain: logits were asked for with a context of 0 rows; the model takes at least 1.");
    CHECK(sentence_of<ConfigurationError>([&] { logits(3, 3, two); }) ==
          "dtrain: the logits of row 3 were asked for, but a sample of 3 rows has the rows 0 to 2.");
    CHECK(sentence_of<ConfigurationError>([&] { logits(3, -1, two); }).find("row -1") != std::string::npos);
    CHECK(sentence_of<Error>([&] { logits(1, 0, std::span(two).first(1)); }) ==
          "dtrain: the logits of 2 classes do not fit into 1 elements.");
    logits(3, 2, two);
    CHECK(two[0] != two[1]);
  });
}

}  // namespace
