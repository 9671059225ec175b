// Trains a model from the weights and batch of a golden case, under any strategy, and compares with PyTorch.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dtrain/models/gpt.hpp"
#include "dtrain/models/llama.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "golden.hpp"

namespace golden {

/// Whole tensors of all ranks, put together. `region(stage)` is what to read.
class Gathered {
 public:
  template <class Stage>
  void add(Stage& stage, auto region) {
    const std::lock_guard lock(mutex_);
    for (const dtrain::parallel::LocalParameter& parameter : stage.map()) {
      auto& values = tensors_[parameter.name];
      values.resize(static_cast<std::size_t>(parameter.whole_rows * parameter.whole_columns), std::nan(""));
      dtrain::parallel::for_each_element(parameter, [&](dtrain::Index local, dtrain::Index whole) {
        values[static_cast<std::size_t>(whole)] = static_cast<double>(region[static_cast<std::size_t>(local)]);
      });
    }
  }
  void check(const Tensors& expected, double tolerance) const {
    CHECK(tensors_.size() == expected.size());
    for (const auto& [name, values] : expected) {
      CAPTURE(name);
      REQUIRE(tensors_.contains(name));
      const std::vector<double>& actual = tensors_.at(name);
      REQUIRE(actual.size() == values.size());
      double largest = 0.0;
      double difference = 0.0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values[i]));
        difference = std::isnan(actual[i]) ? INFINITY : std::max(difference, std::abs(actual[i] - values[i]));
      }
      // Softmax does not see a constant added to the keys: the gradient of their bias is rounding alone, which AdamW
      // divides by its size and epsilon.
      const bool holds_key_bias = name.ends_with("qkv.bias");
      CHECK(difference <= (holds_key_bias ? 1e3 : 1.0) * tolerance * largest);
    }
  }

 private:
  std::mutex mutex_{};
  Tensors tensors_{};
};

template <class Stage>
void set_weights(Stage& stage, const Tensors& weights) {
  for (const dtrain::parallel::LocalParameter& parameter : stage.map()) {
    const std::vector<double>& values = weights.at(parameter.name);
    dtrain::parallel::for_each_element(parameter, [&](dtrain::Index local, dtrain::Index whole) {
      stage.parameters()[static_cast<std::size_t>(local)] = values[static_cast<std::size_t>(whole)];
    });
  }
}

/// Loss, gradients, norm and the weights after all steps of the case, under strategy `S`, within `tolerance` relative.
template <class Model, class S>
void check_case(const Case& c, int micro_batches = 1, double tolerance = 1e-12) {
  CAPTURE(S::describe());
  Gathered gradients;
  Gathered weights;
  std::vector<double> losses;
  std::vector<double> norms;
  dtrain::run_ranks<S>(
      [&](dtrain::Rank<S, dtrain::Host>& rank) {
        const auto& t = c.training;
        dtrain::Trainer<Model, S, dtrain::AdamW, double> trainer(
            rank,
            {.learning_rate = t.learning_rate,
             .optimizer = {.beta1 = t.beta1, .beta2 = t.beta2, .epsilon = t.epsilon, .weight_decay = t.weight_decay},
             .clip = t.max_norm});
        auto& stage = trainer.program().stage();
        set_weights(stage, c.weights);
        for (std::int64_t step = 0; step < t.steps; ++step) {
          const auto report = trainer.step({.samples = c.samples, .context = c.context, .micro_batches = micro_batches},
                                           [&](dtrain::Range samples, auto inputs, std::span<std::int32_t> targets) {
                                             const auto first = samples.begin * c.context;
                                             if (!inputs.empty())
                                               std::copy_n(c.tokens.begin() + first, inputs.size(), inputs.begin());
                                             if (!targets.empty())
                                               std::copy_n(c.targets.begin() + first, targets.size(), targets.begin());
                                           });
          if (step == 0) gradients.add(stage, stage.gradients());
          if (rank.is_first()) {
            losses.push_back(report.loss);
            norms.push_back(report.gradient_norm);
          }
        }
        weights.add(stage, stage.parameters());
      },
      {.threads_per_rank = 1});
  CHECK(losses[0] == doctest::Approx(c.loss).epsilon(tolerance));
  CHECK(norms[0] == doctest::Approx(c.gradient_norm).epsilon(tolerance));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CHECK(losses[step] == doctest::Approx(c.training.losses[step]).epsilon(tolerance));
    CHECK(norms[step] == doctest::Approx(c.training.gradient_norms[step]).epsilon(tolerance));
  }
  gradients.check(c.gradients, tolerance);
  weights.check(c.training.weights, tolerance);
}

}  // namespace golden
