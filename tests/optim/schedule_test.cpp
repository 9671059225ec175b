#include "dtrain/optim/schedule.hpp"

#include <doctest/doctest.h>

#include <string>

#include "dtrain/optim/learning_rate.hpp"
#include "dtrain/optim/training_clock.hpp"

namespace dt = dtrain;

namespace {

constexpr double close = 1e-15;

template <class Schedule>
Schedule megatron() {
  return {.peak = 0.1, .warmup = 100, .decay_steps = 1000, .minimum = 0.001, .initial = 0.01};
}

bool near(double a, double b, double bound = close) { return std::abs(a - b) <= bound; }

template <class Action>
std::string sentence(Action&& action) {
  try {
    action();
  } catch (const dt::ConfigurationError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// fault F3
TEST_CASE("linear and cosine schedules give Megatron's vectors") {
  const auto linear = megatron<dt::LinearDecay>();
  const auto cosine = megatron<dt::Cosine>();
  CHECK(near(linear(0), 0.01));
  CHECK(near(linear(50), 0.055));
  CHECK(near(linear(100), 0.1));
  CHECK(near(linear(500), 0.056));
  CHECK(linear(1000) == 0.001);
  CHECK(linear(5000) == 0.001);
  CHECK(near(cosine(50), 0.055));
  CHECK(near(cosine(100), 0.1));
  // 0.001 + 0.099 (1 + cos(4 pi / 9)) / 2
  CHECK(near(cosine(500), 0.0590955847945130523));
  CHECK(near(cosine(550), 0.0505));
  CHECK(cosine(1000) == 0.001);
}

// fault F3
TEST_CASE("the ends of every phase are met by one step only") {
  const dt::Cosine cosine{.peak = 1, .warmup = 4, .decay_steps = 8, .minimum = 0.5};
  CHECK(cosine(0) == 0.0);
  CHECK(cosine(1) == 0.25);
  CHECK(cosine(3) == 0.75);
  CHECK(cosine(4) == 1.0);
  CHECK(cosine(5) < 1.0);
  CHECK(cosine(7) > 0.5);
  CHECK(cosine(8) == 0.5);
  const dt::LinearDecay without_warmup{.peak = 1, .decay_steps = 4};
  CHECK(without_warmup(0) == 1.0);
  CHECK(without_warmup(1) == 0.75);
  CHECK(without_warmup(4) == 0.0);
}

TEST_CASE("warm-up, stable, decay") {
  dt::WarmupStableDecay schedule{
      .peak = 1, .warmup = 10, .decay_steps = 100, .annealing_steps = 20, .minimum = 0.2, .initial = 0.5};
  CHECK(schedule(0) == 0.5);
  CHECK(schedule(5) == 0.75);
  CHECK(schedule(10) == 1.0);
  CHECK(schedule(80) == 1.0);
  CHECK(near(schedule(90), 0.6));
  CHECK(schedule(100) == 0.2);
  schedule.annealing = dt::Annealing::cosine;
  CHECK(near(schedule(90), 0.6));
  CHECK(near(schedule(85), 0.2 + 0.8 * 0.8535533905932738));
  schedule.annealing = dt::Annealing::one_minus_sqrt;
  CHECK(near(schedule(85), 0.6));
  schedule.annealing_steps = 0;
  schedule.annealing = dt::Annealing::linear;
  CHECK(schedule(90) == 1.0);
  CHECK(near(schedule(95), 0.6));
}

TEST_CASE("a schedule over the whole run takes its length from resolved()") {
  const dt::Cosine open{.peak = 0.1, .warmup = 100, .minimum = 0.001, .initial = 0.01};
  CHECK(sentence([&] { open(0); }).starts_with("Cosine: the length of the run is not known"));
  CHECK(near(open.resolved(1000)(500), 0.0590955847945130523));
  // A run that ends within its warm-up rises to the end.
  CHECK(near(open.resolved(50)(49), 0.01 + 0.09 * 49 / 100));
  CHECK(near(open.resolved(100)(100), 0.1));
  // An explicit length stays.
  CHECK(megatron<dt::Cosine>().resolved(7).decay_steps == 1000);
}

TEST_CASE("a learning rate holds a number, a schedule or a function") {
  const dt::LearningRate number = 0.25;
  CHECK(number(0) == 0.25);
  CHECK(number.resolved(10)(1000000) == 0.25);
  const dt::LearningRate cosine = dt::Cosine{.peak = 0.1, .warmup = 100, .minimum = 0.001, .initial = 0.01};
  CHECK_THROWS_AS((void)cosine(0), dt::ConfigurationError);
  const dt::LearningRate resolved = cosine.resolved(1000);
  CHECK(near(resolved(500), 0.0590955847945130523));
  CHECK_THROWS_AS((void)cosine(0), dt::ConfigurationError);  // the original is unchanged
  CHECK_THROWS_AS((void)resolved(-1), dt::ConfigurationError);
  const dt::LearningRate function = [](dt::Index step) { return 1.0 / static_cast<double>(step + 1); };
  CHECK(function(3) == 0.25);
  CHECK(function.resolved(10)(3) == 0.25);
  struct Options {
    dt::LearningRate learning_rate = 1e-3;
  };
  CHECK(Options{.learning_rate = dt::Constant{.rate = 0.5, .warmup = 2}}.learning_rate(1) == 0.25);
  CHECK(Options{}.learning_rate(9) == 1e-3);
}

TEST_CASE("schedules that cannot be meant are refused with their numbers") {
  CHECK(sentence([] { dt::LearningRate(-0.5); }) ==
        "Constant: learning rates must be finite and not negative, but peak is -0.5, minimum 0 and initial 0");
  CHECK(sentence([] { dt::LearningRate(dt::Cosine{.peak = 0.1, .warmup = 100, .decay_steps = 50}); }) ==
        "Cosine: decay_steps is 50, less than the warmup of 100 steps that it includes");
  CHECK(sentence([] { dt::LearningRate(dt::Cosine{.peak = 0.1, .minimum = 0.2}); }) ==
        "Cosine: peak is 0.1, below minimum 0.2 or initial 0");
  CHECK(sentence([] { dt::LearningRate(dt::LinearDecay{.peak = 0.1, .warmup = -3}); }) ==
        "LinearDecay: step counts must not be negative, but warmup is -3 and decay_steps 0");
  CHECK(sentence([] {
          dt::LearningRate(dt::WarmupStableDecay{.peak = 1, .warmup = 60, .decay_steps = 100, .annealing_steps = 50});
        }) == "WarmupStableDecay: 60 steps of warm-up and 50 of annealing do not fit into decay_steps, 100");
}

// fault F4
TEST_CASE("a skipped step advances neither the schedule nor the bias correction") {
  dt::optim::TrainingClock clock;
  CHECK(clock.schedule_step() == 0);
  CHECK(clock.optimizer_step() == 1);
  clock.advance(true);
  clock.advance(false);
  clock.advance(true);
  CHECK(clock.schedule_step() == 2);
  CHECK(clock.optimizer_step() == 3);
  CHECK(clock.skipped == 1);
  CHECK(clock.attempts() == 3);
  CHECK(megatron<dt::Cosine>()(clock.schedule_step()) == megatron<dt::Cosine>()(2));
}
