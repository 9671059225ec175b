// The loss scale: when it backs off, grows and gives up, and how clipping treats gradients that carry it.
#include "dtrain/optim/loss_scaling.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/optim/clip.hpp"
#include "dtrain/optim/sgd.hpp"

namespace {

using dtrain::LossScaling;
using dtrain::optim::LossScale;

LossScale after(LossScale state, const std::vector<bool>& overflows, const LossScaling& scaling) {
  for (const bool overflow : overflows) state = state.after(overflow, scaling);
  return state;
}

// fault B13
TEST_CASE("with a hysteresis of 2, the first overflow changes nothing and each one after it halves the scale") {
  const LossScaling scaling{.hysteresis = 2};
  const LossScale start = LossScale::start(scaling);
  CHECK(start.scale == 65536.0);
  CHECK(after(start, {true}, scaling).scale == 65536.0);
  CHECK(after(start, {true, true}, scaling).scale == 32768.0);
  CHECK(after(start, {true, true, true}, scaling).scale == 16384.0);
  // Clean steps do not forgive an overflow: growing does.
  CHECK(after(start, {true, false, true}, scaling).scale == 32768.0);
}

TEST_CASE("the scale grows after an interval without overflow, which also restores the hysteresis") {
  const LossScaling scaling{.initial = 4.0, .growth_interval = 3, .hysteresis = 2, .maximum = 16.0};
  const LossScale start = LossScale::start(scaling);
  CHECK(after(start, {false, false}, scaling).scale == 4.0);
  CHECK(after(start, {false, false, false}, scaling).scale == 8.0);
  CHECK(after(start, {false, false, true, false, false}, scaling).scale == 4.0);  // counted anew
  const LossScale grown = after(start, {true, false, false, false}, scaling);
  CHECK(grown == LossScale{.scale = 8.0, .clean_steps = 0, .overflows_allowed = 2, .skipped_in_a_row = 0});
  CHECK(after(grown, std::vector<bool>(9, false), scaling).scale == 16.0);
  CHECK(after(grown, std::vector<bool>(30, false), scaling).scale == 16.0);
}

TEST_CASE("the defaults are those of Megatron-LM and Apex") {
  const LossScaling scaling;
  LossScale state = LossScale::start(scaling);
  for (int step = 0; step < 1999; ++step) state = state.after(false, scaling);
  CHECK(state.scale == 65536.0);
  CHECK(state.after(false, scaling).scale == 131072.0);
}

// fault B14
TEST_CASE("at its minimum the scale stays, and a run that skips on and on ends with an error") {
  const LossScaling scaling{.initial = 4.0, .hysteresis = 1, .minimum = 1.0, .most_skipped = 5};
  LossScale state = LossScale::start(scaling);
  std::vector<double> scales;
  for (int step = 0; step < 4; ++step) {
    state = state.after(true, scaling);
    scales.push_back(state.scale);
  }
  CHECK(scales == std::vector<double>{2.0, 1.0, 1.0, 1.0});
  const std::string sentence = [&] {
    try {
      (void)state.after(true, scaling);
    } catch (const dtrain::NumericalError& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK(sentence ==
        "dtrain: the gradients of 5 steps in a row were not finite, and the loss scale is at its minimum of 1. Nothing "
        "was updated. A smaller scale will not help: lower the learning rate, or train in bfloat16.");
  // One good step in between, and the counting begins again.
  CHECK(after(state, {false, true, true, true, true}, scaling).skipped_in_a_row == 4);
  // From the default scale it takes many more, of which each but the first lowers it.
  CHECK(after(LossScale::start({}), std::vector<bool>(17, true), {}).scale == 1.0);
}

TEST_CASE("a fixed scale stays and never ends a run") {
  const LossScaling fixed = LossScaling::fixed(128.0);
  fixed.validate();
  CHECK(after(LossScale::start(fixed), std::vector<bool>(100, true), fixed).scale == 128.0);
  CHECK(after(LossScale::start(fixed), std::vector<bool>(5000, false), fixed).scale == 128.0);
}

// fault B9
TEST_CASE("the true gradient is clipped, not the scaled one") {
  dtrain::Host device;
  const double scale = 65536.0;
  const std::vector<float> gradients{static_cast<float>(3 * scale), static_cast<float>(4 * scale)};
  const double norm = std::sqrt(dtrain::ops::sum_of_squares(device, std::span(gradients))) / scale;
  CHECK(norm == 5.0);
  const auto verdict = dtrain::optim::clip_coefficient(norm, 1.0, scale);
  CHECK_FALSE(verdict.skip);
  std::vector<float> weights(2, 0.0f);
  dtrain::Sgd{}.update(device, std::span<float>(weights), std::span<const float>(gradients), {std::span<float>{}}, 1.0,
                       verdict.coefficient, 1, false);
  CHECK(weights[0] == doctest::Approx(-0.6).epsilon(1e-6));
  CHECK(weights[1] == doctest::Approx(-0.8).epsilon(1e-6));
  // A norm within the bound is not clipped, but the scale goes.
  CHECK(dtrain::optim::clip_coefficient(0.5, 1.0, scale).coefficient == 1.0 / scale);
  CHECK(dtrain::optim::clip_coefficient(std::numeric_limits<double>::infinity(), 1.0, scale).skip);
}

TEST_CASE("what cannot be a scaling is refused") {
  using dtrain::ConfigurationError;
  LossScaling{}.validate();
  CHECK_THROWS_AS((LossScaling{.initial = 0.0}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.initial = 0.5}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.initial = 0x1p25}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.growth = 0.5}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.backoff = std::numeric_limits<double>::quiet_NaN()}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.hysteresis = 0}.validate()), ConfigurationError);
  CHECK_THROWS_AS((LossScaling{.growth_interval = -1}.validate()), ConfigurationError);
}

}  // namespace
