#include "dtrain/optim/optimizer.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/clip.hpp"
#include "dtrain/optim/schedule.hpp"
#include "dtrain/optim/sgd.hpp"
#include "dtrain/optim/training_clock.hpp"

namespace dt = dtrain;

namespace {

/// Parameters and state of one optimizer, and one update of them.
template <class Optimizer, class T = double>
struct Run {
  Optimizer optimizer;
  std::vector<T> weights;
  std::array<std::vector<T>, static_cast<std::size_t>(Optimizer::states)> state{};

  Run(Optimizer kind, std::vector<T> initial) : optimizer(kind), weights(std::move(initial)) {
    for (auto& buffer : state) buffer.resize(weights.size());
  }

  void update(const std::vector<T>& gradients, double learning_rate, dt::Index step, double scale = 1,
              bool decay = true) {
    update_part(0, weights.size(), gradients, learning_rate, step, scale, decay);
  }
  void update_part(std::size_t begin, std::size_t count, const std::vector<T>& gradients, double learning_rate,
                   dt::Index step, double scale, bool decay) {
    dt::Host host;
    std::array<std::span<T>, static_cast<std::size_t>(Optimizer::states)> spans;
    for (std::size_t i = 0; i < spans.size(); ++i) spans[i] = std::span<T>(state[i]).subspan(begin, count);
    optimizer.update(host, std::span<T>(weights).subspan(begin, count),
                     std::span<const T>(gradients).subspan(begin, count), spans, learning_rate, scale, step, decay);
  }
};

constexpr dt::AdamW plain_adam{.weight_decay = 0};
bool near(double a, double b, double bound = 1e-12) { return std::abs(a - b) <= bound; }

template <class Optimizer>
std::string refusal(const Optimizer& optimizer) {
  try {
    dt::optim::validate(optimizer);
  } catch (const dt::ConfigurationError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// fault F1
TEST_CASE("a resumed AdamW continues its bias correction") {
  // With a gradient of 1 throughout, both corrected moments are 1 and every step is lr / (1 + epsilon).
  Run run(plain_adam, std::vector<double>{1.0});
  dt::optim::TrainingClock clock;
  for (int step = 0; step < 2; ++step) {
    run.update({1.0}, 0.1, clock.optimizer_step());
    clock.advance(true);
  }
  CHECK(near(run.weights[0], 0.8, 1e-8));
  auto resumed = run;
  resumed.update({1.0}, 0.1, clock.optimizer_step());
  CHECK(near(resumed.weights[0], 0.7, 1e-8));
  // The test can see the fault: a step count that starts again gives another weight.
  run.update({1.0}, 0.1, 1);
  CHECK(near(run.weights[0], 0.64346, 1e-5));
}

// fault D11
TEST_CASE("decay follows the flag of a range within one flat bucket") {
  const std::vector<double> zero(6, 0.0);
  Run run(dt::AdamW{.weight_decay = 0.1}, std::vector<double>(6, 1.0));
  run.update_part(0, 3, zero, 0.1, 1, 1.0, true);   // matrix
  run.update_part(3, 2, zero, 0.1, 1, 1.0, false);  // norm
  run.update_part(5, 1, zero, 0.1, 1, 1.0, false);  // bias
  CHECK(run.weights == std::vector<double>{0.99, 0.99, 0.99, 1, 1, 1});
}

TEST_CASE("updating a shard at a time equals updating the whole, to the bit") {
  std::vector<float> weights(37), gradients(37);
  for (std::size_t i = 0; i < 37; ++i) {
    weights[i] = std::sin(static_cast<float>(i));
    gradients[i] = std::cos(3 * static_cast<float>(i));
  }
  Run<dt::AdamW, float> whole(dt::AdamW{}, weights), parts(dt::AdamW{}, weights);
  for (dt::Index step = 1; step <= 4; ++step) {
    whole.update(gradients, 0.01, step, 0.5);
    for (const auto& [begin, count] : {std::pair{0, 5}, {5, 16}, {21, 16}})
      parts.update_part(static_cast<std::size_t>(begin), static_cast<std::size_t>(count), gradients, 0.01, step, 0.5,
                        true);
  }
  CHECK(whole.weights == parts.weights);
  CHECK(whole.state == parts.state);
}

TEST_CASE("the gradient scale acts before the moments") {
  Run scaled(plain_adam, std::vector<double>{1.0, 1.0}), direct(plain_adam, std::vector<double>{1.0, 1.0});
  for (dt::Index step = 1; step <= 3; ++step) {
    scaled.update({6.0, 8.0}, 0.1, step, dt::optim::clip_coefficient(10.0, 1.0).coefficient);
    direct.update({0.6, 0.8}, 0.1, step);
  }
  CHECK(near(scaled.state[0][0], direct.state[0][0]));
  CHECK(near(scaled.state[1][1], direct.state[1][1]));
  CHECK(near(scaled.weights[1], direct.weights[1]));
}

// fault B8
TEST_CASE("a loop that obeys the verdict leaves weights and state bit-identical") {
  Run run(dt::AdamW{}, std::vector<double>{1.0, -2.0});
  dt::optim::TrainingClock clock;
  const auto attempt = [&](const std::vector<double>& gradients) {
    dt::Host host;
    const double norm = std::sqrt(dt::ops::sum_of_squares(host, std::span<const double>(gradients)));
    const auto verdict = dt::optim::clip_coefficient(norm, 1.0);
    if (!verdict.skip) run.update(gradients, 0.1, clock.optimizer_step(), verdict.coefficient);
    clock.advance(!verdict.skip);
  };
  attempt({1.0, 2.0});
  const auto weights = run.weights;
  const auto state = run.state;
  attempt({1.0, std::numeric_limits<double>::infinity()});
  CHECK(run.weights == weights);
  CHECK(run.state == state);
  CHECK(clock.skipped == 1);
  attempt({1.0, 2.0});
  CHECK(run.weights != weights);
  CHECK(clock.updates == 2);
}

TEST_CASE("SGD with momentum, dampening, nesterov and decay") {
  Run plain(dt::Sgd{}, std::vector<double>{1.0});
  plain.update({2.0}, 0.25, 1);
  CHECK(plain.weights[0] == 0.5);

  Run heavy(dt::Sgd{.momentum = 0.5, .dampening = 0.5}, std::vector<double>{1.0});
  heavy.update({1.0}, 0.5, 1);  // buffer 1: dampening does not touch the first step
  CHECK(heavy.weights[0] == 0.5);
  heavy.update({1.0}, 0.5, 2);  // buffer 0.5 + 0.5
  CHECK(heavy.state[0][0] == 1.0);
  CHECK(heavy.weights[0] == 0.0);

  Run ahead(dt::Sgd{.momentum = 0.5, .nesterov = true}, std::vector<double>{1.0});
  ahead.update({1.0}, 0.5, 1);  // 1 + 0.5 * 1
  CHECK(ahead.weights[0] == 0.25);

  Run decayed(dt::Sgd{.weight_decay = 0.5}, std::vector<double>{1.0});
  decayed.update({0.0}, 0.5, 1);
  CHECK(decayed.weights[0] == 0.75);
  decayed.update({0.0}, 0.5, 2, 1.0, false);
  CHECK(decayed.weights[0] == 0.75);
}

TEST_CASE("hyperparameters out of range are refused with their numbers") {
  CHECK(refusal(dt::AdamW{}).empty());
  CHECK(refusal(dt::AdamW{.beta1 = 1}) == "AdamW: beta1 is 1, but must lie in [0, 1)");
  CHECK(refusal(dt::AdamW{.beta2 = -0.5}) == "AdamW: beta2 is -0.5, but must lie in [0, 1)");
  CHECK(refusal(dt::AdamW{.epsilon = 0}) == "AdamW: epsilon is 0, but must be positive");
  CHECK(refusal(dt::AdamW{.weight_decay = std::nan("")}) == "AdamW: weight_decay is nan, but must not be negative");
  CHECK(refusal(dt::Sgd{}).empty());
  CHECK(refusal(dt::Sgd{.momentum = -1}) == "Sgd: momentum is -1, but must not be negative");
  CHECK(refusal(dt::Sgd{.nesterov = true}) ==
        "Sgd: nesterov needs a momentum and no dampening, but momentum is 0 and dampening 0");
}

TEST_CASE("names of states are as many as states") {
  static_assert(dt::AdamW::state_names.size() == 2 && dt::Sgd::state_names.size() == 1);
  static_assert(dt::optim::OptimizerFor<dt::AdamW, dt::Host, float>);
  static_assert(!dt::optim::OptimizerFor<int, dt::Host, float>);
  static_assert(!dt::optim::OptimizerFor<dt::Cosine, dt::Host, float>);
}
