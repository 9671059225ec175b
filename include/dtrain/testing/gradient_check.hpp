// Compares the gradients of layers and models with finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/testing/recorded_run.hpp"
#include "dtrain/testing/unit_run.hpp"

namespace dtrain::testing {

/// How gradients are checked.
struct GradientCheckOptions {
  UnitShape shape{};
  /// Step of the differences.
  double step = 1e-4;
  /// Largest difference allowed, relative to the largest element of the gradient of its tensor (but to no less than a
  /// thousandth of the largest gradient of all).
  double tolerance = 1e-7;
  /// Elements checked of each tensor, spread over it; 0: all.
  Index elements = 0;
};

namespace detail {

/// The derivative of f at x by five points: (f(x-2h) - 8 f(x-h) + 8 f(x+h) - f(x+2h)) / 12h, exact to the fourth power
/// of h (M. Abramowitz and I. Stegun, "Handbook of mathematical functions", 1964, table 25.2).
template <class F>
double derivative(double& x, double step, F&& f) {
  const double at = x;
  const auto value = [&](double offset) {
    x = at + offset;
    return f();
  };
  const double difference = value(-2 * step) - 8 * value(-step) + 8 * value(step) - value(2 * step);
  x = at;
  return difference / (12 * step);
}

/// A tensor whose gradient is checked: what is varied, and the gradient that the backward pass gave.
struct CheckedTensor {
  std::string name;
  std::span<double> values;
  std::vector<double> gradient;
};

inline double largest_of(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Compares every tensor with differences of `loss()`; returns the largest relative difference.
template <class Loss>
double compare_with_differences(std::string_view who, std::span<CheckedTensor> tensors,
                                const GradientCheckOptions& options, Loss&& loss) {
  double overall = 0.0;
  for (const CheckedTensor& tensor : tensors) overall = std::max(overall, largest_of(tensor.gradient));
  double worst = 0.0;
  for (CheckedTensor& tensor : tensors) {
    const double scale = std::max(largest_of(tensor.gradient), 1e-3 * overall);
    const std::size_t size = tensor.values.size();
    const std::size_t stride =
        options.elements > 0 ? std::max<std::size_t>(1, size / static_cast<std::size_t>(options.elements)) : 1;
    for (std::size_t i = 0; i < size; i += stride) {
      const double expected = derivative(tensor.values[i], options.step, loss);
      const double difference = std::abs(tensor.gradient[i] - expected);
      const double relative = difference == 0.0 ? 0.0 : difference / scale;
      if (!(relative <= options.tolerance))
        throw Error(concatenate("dtrain: the gradient of ", who, " by element ", i, " of ", tensor.name, " is ",
                                tensor.gradient[i], ", but finite differences give ", expected, ": a difference of ",
                                relative, " relative to the largest, and ", options.tolerance, " is allowed."));
      worst = std::max(worst, relative);
    }
  }
  return worst;
}

}  // namespace detail

/// Checks a layer's gradients by its input and by each of its parameters against finite differences of
/// loss = sum of y times fixed random numbers, in double. `L` is a layer, or a `Sequence`, `Residual` or `Named` of
/// some. Returns the largest relative difference; throws Error naming the tensor, the element and both values.
template <class L>
double check_gradients(const GradientCheckOptions& options = {}) {
  Host device;
  UnitRun<nn::Named<"layer", L>> run(device, options.shape);
  std::vector<double> weights(static_cast<std::size_t>(run.outputs()));
  const RandomStream drawn(options.shape.seed, hash_name("loss"));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = drawn.normal(i);
  const auto loss = [&] {
    const std::vector<double> y = run.forward();
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  loss();
  std::vector<detail::CheckedTensor> tensors;
  tensors.push_back({"the input", run.input(), run.backward(weights)});
  for (const parallel::LocalParameter& parameter : run.map()) {
    const auto part = [&](std::span<double> region) {
      return region.subspan(static_cast<std::size_t>(parameter.offset), static_cast<std::size_t>(parameter.size()));
    };
    const auto gradient = part(run.gradients());
    tensors.push_back({parameter.name, part(run.parameters()), {gradient.begin(), gradient.end()}});
  }
  return detail::compare_with_differences("the layer", tensors, options, loss);
}

/// Checks the gradients of a whole model's mean loss by each of its parameters, dropout included, on one rank.
/// `elements` of each parameter are checked. Returns and throws as `check_gradients`.
template <class Model>
double check_model_gradients(GradientCheckOptions options = {}) {
  if (options.elements == 0) options.elements = 12;
  double worst = 0.0;
  train::run_ranks<Serial>(
      [&](train::Rank<Serial, Host>& rank) {
        train::Trainer<Model, Serial, AdamW, double> trainer(rank, {.seed = options.shape.seed});
        auto& program = trainer.program();
        auto& stage = program.stage();
        constexpr Index classes =
            parallel::CrossEntropy<typename std::remove_reference_t<decltype(program)>::Lowered, double>::classes;
        const RunOptions batch{
            .samples = options.shape.samples, .context = options.shape.context, .seed = options.shape.seed};
        const parallel::BatchShape shape{.samples = batch.samples, .context = batch.context};
        const auto loss = [&] {
          return program
              .gradients(shape, 0,
                         [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
                           detail::fill_batch(batch, classes, 0, samples, inputs, targets);
                         })
              .loss();
        };
        loss();
        std::vector<detail::CheckedTensor> tensors;
        for (const parallel::LocalParameter& parameter : stage.map()) {
          const auto part = [&](std::span<double> region) {
            return region.subspan(static_cast<std::size_t>(parameter.offset),
                                  static_cast<std::size_t>(parameter.size()));
          };
          const auto gradient = part(stage.gradients());
          tensors.push_back({parameter.name, part(stage.parameters()), {gradient.begin(), gradient.end()}});
        }
        worst = detail::compare_with_differences("the model", tensors, options, loss);
      },
      {.threads_per_rank = 1});
  return worst;
}

}  // namespace dtrain::testing
