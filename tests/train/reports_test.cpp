// What a step reports: one loss on every rank, and tokens per second with and without the time spent waiting for data.
#include "dtrain/train/reports.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "dtrain/nn/linear.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;
using namespace std::chrono_literals;

// Two layers that can be made to pass their input on: the features are the logits.
using Through = nn::Sequence<nn::Named<"first", nn::Linear<2, 2, nn::LinearOptions{.divide = false}>>,
                             nn::Named<"second", nn::Linear<2, 2, nn::LinearOptions{.divide = false}>>>;

double identity(const std::string& name, Index element) {
  return name.ends_with("weight") && (element == 0 || element == 3) ? 1.0 : 0.0;
}

// Samples 0 to 2 have a loss of 2 each; of samples 3 to 5, only the first counts, with a loss of 5.
void feed_losses(Range samples, std::span<double> inputs, std::span<std::int32_t> targets) {
  for (Index s = samples.begin; s < samples.end; ++s) {
    const auto row = static_cast<std::size_t>(s - samples.begin);
    const double loss = s < 3 ? 2.0 : 5.0;
    if (!inputs.empty()) inputs[2 * row] = 0.0;
    if (!inputs.empty()) inputs[2 * row + 1] = std::log(std::exp(loss) - 1.0);
    if (!targets.empty()) targets[row] = s < 4 ? 0 : data::ignore_index;
  }
}

template <class S>
void check_loss_everywhere() {
  CAPTURE(S::describe());
  std::atomic<int> ranks{0};
  run_ranks<S>([&](auto& rank) {
    train::Trainer<Through, S, AdamW, double> trainer(rank);
    set_weights(trainer, identity);
    const auto shape = trainer.batch_shape(6, 1, 1);
    const auto evaluated = trainer.program().evaluate(shape, feed_losses);
    CHECK(evaluated.tokens == 4);
    CHECK(evaluated.loss() == doctest::Approx(2.75).epsilon(1e-14));
    const StepReport report = trainer.step(shape, feed_losses);
    CHECK(report.loss == doctest::Approx(2.75).epsilon(1e-14));
    CHECK(report.counted_tokens == 4);
    CHECK(report.tokens == 6);
    ++ranks;
  });
  CHECK(ranks == S::static_ranks);
}

TEST_CASE("the loss is the mean over all counted targets, and every rank reports it") {
  // fault I2
  // fault E8
  check_loss_everywhere<Serial>();
  check_loss_everywhere<Data2>();
  check_loss_everywhere<Pipeline2>();
}

TEST_CASE("tokens per second: of the wall's time, and of the time without waiting for data") {
  // fault I4
  const StepReport half{.tokens = 128, .seconds = 1.0, .waiting_seconds = 0.5};
  CHECK(half.tokens_per_second() == 128.0);
  CHECK(half.compute_tokens_per_second() == 256.0);
  CHECK(StepReport{}.tokens_per_second() == 0.0);
  CHECK(StepReport{}.compute_tokens_per_second() == 0.0);
  run_ranks<Data2>([](auto& rank) {
    train::Trainer<Through, Data2, AdamW, double> trainer(rank);
    // Both ranks wait: the time is of the wall, and neither adds the other's.
    const StepReport report = trainer.step(trainer.batch_shape(6, 1, 1), [](Range samples, auto inputs, auto targets) {
      std::this_thread::sleep_for(200ms);
      feed_losses(samples, inputs, targets);
    });
    CHECK(report.waiting_seconds >= 0.2);
    CHECK(report.seconds >= report.waiting_seconds);
    CHECK(report.tokens_per_second() <= 6 / 0.2);
    CHECK(report.compute_tokens_per_second() > report.tokens_per_second());
    CHECK(report.tokens_per_second() * report.seconds == doctest::Approx(6.0));
    CHECK(report.compute_tokens_per_second() * (report.seconds - report.waiting_seconds) == doctest::Approx(6.0));
  });
}

}  // namespace
