// The fixtures themselves: complete, consistent, and reproduced where the library's optimizers alone suffice.
#include "golden.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/clip.hpp"
#include "dtrain/optim/sgd.hpp"

namespace {

template <class Optimizer>
std::vector<double> train(const Optimizer& optimizer, const nlohmann::json& golden, double scale) {
  dtrain::Host host;
  auto weights = golden.at("weights").get<std::vector<double>>();
  const auto rates = golden.at("learning_rates").get<std::vector<double>>();
  std::array<std::vector<double>, Optimizer::states> state;
  std::array<std::span<double>, Optimizer::states> spans;
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i].resize(weights.size());
    spans[i] = state[i];
  }
  dtrain::Index step = 0;
  for (auto gradient : golden.at("gradients").get<std::vector<std::vector<double>>>()) {
    for (double& element : gradient) element /= scale;
    optimizer.update(host, std::span<double>(weights), std::span<const double>(gradient), spans,
                     rates[static_cast<std::size_t>(step)], scale, step + 1, true);
    ++step;
  }
  return weights;
}

}  // namespace

TEST_CASE("ten steps of AdamW and SGD equal PyTorch's") {
  const auto golden = golden::read("optimizers");
  REQUIRE(golden.at("runs").size() == 6);
  for (const auto& run : golden.at("runs")) {
    const auto expected = run.at("result").get<std::vector<double>>();
    for (const double scale : {1.0, 8.0}) {
      const auto result = run.at("kind") == "adamw" ? train(dtrain::AdamW{.beta1 = run.at("beta1"),
                                                                          .beta2 = run.at("beta2"),
                                                                          .epsilon = run.at("epsilon"),
                                                                          .weight_decay = run.at("weight_decay")},
                                                            golden, scale)
                                                    : train(dtrain::Sgd{.momentum = run.at("momentum"),
                                                                        .dampening = run.at("dampening"),
                                                                        .nesterov = run.at("nesterov"),
                                                                        .weight_decay = run.at("weight_decay")},
                                                            golden, scale);
      REQUIRE(result.size() == expected.size());
      for (std::size_t i = 0; i < result.size(); ++i)
        CHECK(std::abs(result[i] - expected[i]) <= 1e-13 * std::max(1.0, std::abs(expected[i])));
    }
  }
}

TEST_CASE("every model's fixture is complete") {
  for (const char* name :
       {"gpt", "gpt_untied_erf", "gpt_grouped_no_bias", "llama", "llama_one_key", "llama_all_keys"}) {
    CAPTURE(name);
    const golden::Case c = golden::load(name);
    const auto positions = static_cast<std::size_t>(c.samples * c.context);
    CHECK(c.tokens.size() == positions);
    CHECK(c.targets.size() == positions);
    CHECK(c.logits.size() == positions * static_cast<std::size_t>(c.vocabulary));
    CHECK(std::count_if(c.targets.begin(), c.targets.end(), [](int target) { return target >= 0; }) == c.counted);
    CHECK(c.counted < static_cast<std::int64_t>(positions));
    CHECK(c.weights.contains("head.weight") == !c.tied);
    dtrain::Host host;
    double squares = 0;
    for (const auto& [tensor, shape] : c.shapes) {
      std::size_t size = 1;
      for (const auto extent : shape) size *= static_cast<std::size_t>(extent);
      CHECK(c.weights.at(tensor).size() == size);
      CHECK(c.gradients.at(tensor).size() == size);
      CHECK(c.training.weights.at(tensor).size() == size);
      CHECK(c.training.weights.at(tensor) != c.weights.at(tensor));
      squares += dtrain::ops::sum_of_squares(host, std::span<const double>(c.gradients.at(tensor)));
    }
    CHECK(std::sqrt(squares) == doctest::Approx(c.gradient_norm).epsilon(1e-13));
    CHECK(c.gradient_norm > c.training.max_norm);  // clipping takes part
    CHECK(c.training.losses.size() == static_cast<std::size_t>(c.training.steps));
    CHECK(c.training.losses[0] == doctest::Approx(c.loss).epsilon(1e-14));
    // The loss follows from the logits.
    double sum = 0;
    for (std::size_t row = 0; row < positions; ++row) {
      if (c.targets[row] < 0) continue;
      const auto logits = std::span(c.logits).subspan(row * static_cast<std::size_t>(c.vocabulary),
                                                      static_cast<std::size_t>(c.vocabulary));
      double total = 0;
      for (const double logit : logits) total += std::exp(logit);
      sum += std::log(total) - logits[static_cast<std::size_t>(c.targets[row])];
    }
    CHECK(sum / static_cast<double>(c.counted) == doctest::Approx(c.loss).epsilon(1e-13));
  }
}
