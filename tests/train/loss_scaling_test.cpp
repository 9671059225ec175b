// Training with a scaled loss: one decision on all ranks, exact unscaling, the default of each type, the end of a run.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

// Hidden element 0 is 6e4 gelu(1e-4 x), and the loss's gradient reaches gelu times 6e4: beyond float16's 65504 when
// the loss scale is 8 and the sample's x is 1, but not when the scale is 4 or x is 0.
double overflowing_weight(const std::string& name, Index element) {
  if (element != 0) return 0.0;
  return name == "input.up.weight" ? 1e-4 : name == "input.down.weight" ? 6e4 : name == "output.weight" ? 1.0 : 0.0;
}
// x is 1 from sample `first` on; class 1 for all.
auto feed_from(Index first) {
  return [=](Range samples, auto inputs, std::span<std::int32_t> targets) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = i % 2 == 0 && samples.begin + static_cast<Index>(i / 2) >= first ? 1.0f : 0.0f;
    std::fill(targets.begin(), targets.end(), 1);
  };
}

TEST_CASE("an overflow on one rank lowers the scale and skips the step on all") {
  // fault B8
  // fault B11
  // fault F4
  run_ranks<Data2>(
      [](auto& rank) {
        train::Trainer<TinyMlp, Data2, AdamW, float16> trainer(
            rank, {.learning_rate = 1e-6, .loss_scaling = LossScaling{.initial = 8.0, .hysteresis = 1}});
        set_weights(trainer, overflowing_weight);
        auto& stage = trainer.program().stage();
        const auto bits = [&] {
          std::vector<std::uint16_t> held;
          for (const float16 weight : stage.parameters()) held.push_back(weight.bits());
          return held;
        };
        const auto weights = bits();
        const auto masters = copy_of(trainer.optimizer_states()[0].masters());
        const auto shape = trainer.batch_shape(4, 1);
        const StepReport first = trainer.step(shape, feed_from(2));  // of rank 1 alone
        CHECK(first.skipped);
        CHECK(first.skipped_so_far == 1);
        CHECK(first.loss_scale == 8.0);
        CHECK(std::isfinite(first.loss));
        CHECK(trainer.loss_scale().scale == 4.0);
        CHECK(bits() == weights);
        CHECK(copy_of(trainer.optimizer_states()[0].masters()) == masters);
        const StepReport second = trainer.step(shape, feed_from(2));
        CHECK_FALSE(second.skipped);
        CHECK(second.loss_scale == 4.0);
        CHECK(trainer.clock() == optim::TrainingClock{.updates = 1, .skipped = 1});
        CHECK(trainer.clock().schedule_step() == 1);
        CHECK(copy_of(trainer.optimizer_states()[0].masters()) != masters);
      },
      {.threads_per_rank = 1});
}

TEST_CASE("when the scale can fall no further, all ranks end with the same sentence") {
  // fault B14
  std::vector<std::string> sentences(2);
  run_ranks<Data2>(
      [&](auto& rank) {
        train::Trainer<TinyMlp, Data2, AdamW, float16> trainer(
            rank, {.loss_scaling = LossScaling{.initial = 8.0, .minimum = 8.0, .most_skipped = 3}});
        set_weights(trainer, overflowing_weight);
        const auto shape = trainer.batch_shape(4, 1);
        for (int step = 0; step < 2; ++step) CHECK(trainer.step(shape, feed_from(2)).skipped);
        sentences[static_cast<std::size_t>(rank.index())] =
            sentence_of<NumericalError>([&] { trainer.step(shape, feed_from(2)); });
      },
      {.threads_per_rank = 1});
  CHECK(sentences[0].find("3 steps in a row were not finite, and the loss scale is at its minimum of 8") !=
        std::string::npos);
  CHECK(sentences[0] == sentences[1]);
}

TEST_CASE("a scale that is a power of two changes no bit of a run in float") {
  run_ranks<Serial>([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, AdamW>;
    Trainer plain(rank, {.learning_rate = 1e-2, .clip = 0.1});
    Trainer scaled(rank, {.learning_rate = 1e-2, .clip = 0.1, .loss_scaling = LossScaling::fixed(1024.0)});
    for (int step = 0; step < 5; ++step) {
      const StepReport expected = plain.step(plain.batch_shape(4, 1), feed_from(2));
      const StepReport actual = scaled.step(scaled.batch_shape(4, 1), feed_from(2));
      CHECK(expected.gradient_norm > 0.1);
      CHECK(actual.gradient_norm == expected.gradient_norm);
      CHECK(actual.loss_scale == 1024.0);
    }
    CHECK(copy_of(scaled.program().stage().parameters()) == copy_of(plain.program().stage().parameters()));
    CHECK(plain.loss_scale().scale == 1.0);
  });
}

TEST_CASE("float16 is scaled unless told otherwise, and a run goes on with the scale that it stopped at") {
  run_ranks<Serial>([](auto& rank) {
    using Trainer = train::Trainer<TinyMlp, Serial, AdamW, float16>;
    Trainer first(rank, {});
    CHECK(first.loss_scale() == optim::LossScale::start(LossScaling{}));
    const auto shape = first.batch_shape(4, 1);
    first.step(shape, feed_from(2));
    CHECK(first.loss_scale().clean_steps == 1);
    Trainer resumed(rank, {});
    resumed.resume(first.clock(), first.position(), first.loss_scale());
    CHECK(resumed.loss_scale() == first.loss_scale());
    Trainer unscaled(rank, {.loss_scaling = LossScaling::fixed(1.0)});
    CHECK(unscaled.loss_scale().scale == 1.0);
    CHECK_THROWS_AS(Trainer(rank, {.loss_scaling = LossScaling{.hysteresis = 0}}), ConfigurationError);
  });
}

namespace dt = dtrain;
using Model = TinyMlp;
using Strategy = Serial;

TEST_CASE("the guide's trainer in float16") {
  run_ranks<Serial>([](auto& rank) {
    // [snippet scaling]
    dt::Trainer<Model, Strategy, dt::AdamW, dt::float16> trainer(
        rank, {.learning_rate = 1e-3, .loss_scaling = dt::LossScaling{.initial = 4096.0, .growth_interval = 500}});
    // [end snippet]
    CHECK(trainer.step(trainer.batch_shape(4, 1), feed_from(2)).loss_scale == 4096.0);
  });
}

}  // namespace
