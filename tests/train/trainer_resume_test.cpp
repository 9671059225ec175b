// A run that is stopped and taken up by another trainer goes on as if it had never stopped.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

// All that a run is resumed from, copied by hand.
template <class Trainer>
void hand_over(Trainer& from, Trainer& to) {
  std::ranges::copy(from.program().stage().parameters(), to.program().stage().parameters().begin());
  for (std::size_t s = 0; s < 2; ++s)
    std::ranges::copy(from.optimizer_states()[0].state(s), to.optimizer_states()[0].state(s).begin());
  to.resume(from.clock(), from.position());
}

// AdamW on a gradient of 1, whatever the model computes.
struct OnesAdamW : AdamW {
  template <class T, class Device>
  void update(Device& device, std::span<T> parameters, std::span<const T> gradients,
              std::array<std::span<T>, states> state, double learning_rate, double, Index step, bool decay) const {
    const std::vector<T> ones(gradients.size(), T(1));
    AdamW::update(device, parameters, std::span<const T>(ones), state, learning_rate, 1.0, step, decay);
  }
};

template <class Trainer>
void step_once(Trainer& trainer) {
  trainer.step(trainer.batch_shape(2, 1), [](Range, std::span<double> inputs, std::span<std::int32_t> targets) {
    std::fill(inputs.begin(), inputs.end(), 0.5);
    std::fill(targets.begin(), targets.end(), 1);
  });
}

TEST_CASE("the optimizer's powers of beta go on where they stopped") {
  // fault F1
  run_ranks<Serial>([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, OnesAdamW, double>;
    const Trainer::Options options{.learning_rate = 0.1, .optimizer = {{.weight_decay = 0.0}}};
    const auto weight = [](Trainer& trainer) {
      const auto& parameter = trainer.program().stage().map().front();
      return trainer.program().stage().parameters()[static_cast<std::size_t>(parameter.offset)];
    };
    Trainer first(rank, options);
    set_weights(first, [](const std::string&, Index) { return 1.0; });
    step_once(first);
    step_once(first);
    CHECK(weight(first) == doctest::Approx(0.8).epsilon(1e-7));
    Trainer resumed(rank, options);
    hand_over(first, resumed);
    step_once(resumed);
    CHECK(weight(resumed) == doctest::Approx(0.7).epsilon(1e-7));
    // The same without the clock: the test tells the two apart.
    Trainer forgetful(rank, options);
    hand_over(first, forgetful);
    forgetful.resume({}, {});
    step_once(forgetful);
    CHECK(weight(forgetful) == doctest::Approx(0.64346).epsilon(1e-5));
  });
}

TEST_CASE("the schedule goes on at the step where it stopped") {
  // fault F3
  run_ranks<Serial>([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, AdamW, double>;
    const auto rate_at = [&](optim::LearningRate schedule, Index updates, Index skipped) {
      Trainer trainer(rank, {.learning_rate = schedule});
      trainer.resume({.updates = updates, .skipped = skipped}, {});
      const auto report =
          trainer.step(trainer.batch_shape(2, 1), [](Range, std::span<double> inputs, std::span<std::int32_t> targets) {
            std::fill(inputs.begin(), inputs.end(), 0.5);
            std::fill(targets.begin(), targets.end(), 1);
          });
      CHECK(report.step == updates + skipped + 1);
      return report.learning_rate;
    };
    const LinearDecay linear{.peak = 0.1, .warmup = 100, .decay_steps = 1000, .minimum = 0.001, .initial = 0.01};
    const Cosine cosine{.peak = 0.1, .warmup = 100, .decay_steps = 1000, .minimum = 0.001, .initial = 0.01};
    for (const Index skipped : {0, 3}) {
      CHECK(rate_at(linear, 50, skipped) == doctest::Approx(0.055).epsilon(1e-12));
      CHECK(rate_at(linear, 500, skipped) == doctest::Approx(0.056).epsilon(1e-12));
      CHECK(rate_at(cosine, 500, skipped) == doctest::Approx(0.0590956).epsilon(1e-6));
      CHECK(rate_at(cosine, 1000, skipped) == doctest::Approx(0.001).epsilon(1e-12));
    }
  });
}

TEST_CASE("a resumed run is the run that never stopped, bit for bit: dropout, order of data, schedule, optimizer") {
  using Model = models::Gpt<models::GptShape{
      .vocab = 11, .context = 6, .width = 8, .heads = 2, .layers = 1, .hidden = 16, .dropout = 0.2}>;
  using S = Strategy<DataParallel<2>, TensorParallel<2>>;
  const data::TokenArray text = counting_text(44);
  run_ranks<S>(
      [&](auto& rank) {
        using Trainer = train::Trainer<Model, S>;
        const typename Trainer::Options options{.learning_rate = Cosine{.peak = 1e-2, .warmup = 2, .decay_steps = 7},
                                                .seed = 3};
        const auto losses_of = [&](Trainer& trainer, Index steps) {
          std::vector<double> losses;
          const auto shape = trainer.batch_shape(8, 6, 2);
          for (Index s = 0; s < steps; ++s) {
            const StepReport report = trainer.step(text, shape);
            losses.insert(losses.end(), {report.loss, report.gradient_norm, report.learning_rate});
          }
          return losses;
        };
        Trainer whole(rank, options);
        const auto expected = losses_of(whole, 7);
        Trainer before(rank, options);
        auto losses = losses_of(before, 4);
        // Nothing of the second trainer's start remains: another seed would give other weights, but the order of the
        // data and dropout are functions of it.
        Trainer after(rank, options);
        set_weights(after, [](const std::string&, Index) { return 0.0; });
        hand_over(before, after);
        const auto rest = losses_of(after, 3);
        losses.insert(losses.end(), rest.begin(), rest.end());
        CHECK(losses == expected);
        CHECK(copy_of(after.program().stage().parameters()) == copy_of(whole.program().stage().parameters()));
        CHECK(after.clock() == whole.clock());
        CHECK(after.position() == whole.position());
        CHECK(after.position() == data::Position{.epoch = 1, .index = 12});
      },
      {.threads_per_rank = 1});
}

}  // namespace
