// Programs whose weights, batches and gradients a test writes down as numbers.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/program.hpp"
#include "dtrain/train/launch.hpp"

namespace dtrain::test {

using nn::LinearOptions;
using parallel::ignored_target;

/// logits = W x, which a batch of features therefore chooses.
template <int Classes>
using Logits =
    nn::Sequence<nn::Named<"logits", nn::Linear<Classes, Classes, LinearOptions{.bias = false, .divide = false}>>>;

/// A batch of samples of one row each.
struct Batch {
  std::vector<std::vector<double>> features;
  std::vector<int> targets;

  [[nodiscard]] parallel::BatchShape shape(int micro_batches) const {
    return {.samples = static_cast<Index>(targets.size()), .context = 1, .micro_batches = micro_batches};
  }
  template <class T>
  void fill(Range samples, std::span<T> inputs, std::span<std::int32_t> wanted) const {
    for (Index s = samples.begin; s < samples.end; ++s) {
      const auto sample = static_cast<std::size_t>(s);
      const auto local = static_cast<std::size_t>(s - samples.begin);
      const std::size_t width = features[sample].size();
      if (!inputs.empty())
        for (std::size_t f = 0; f < width; ++f) inputs[local * width + f] = static_cast<T>(features[sample][f]);
      if (!wanted.empty()) wanted[local] = targets[sample];
    }
  }
  /// Adds a row of two logits whose cross entropy is `loss`: log(1 + exp(-a)) = loss.
  void add_loss(double loss) { add({-std::log(std::expm1(loss)), 0.0}, 0); }
  void add_ignored() { add({3.0, -1.0}, ignored_target); }
  /// Adds a row that gives weight (0, 0) the gradient `g`, divided by the count, where W is 0: (1/2 - 1) x = g.
  void add_gradient(double g) { add({-2.0 * g, 0.0}, 0); }
  void add(std::vector<double> x, int target) {
    features.push_back(std::move(x));
    targets.push_back(target);
  }
};

/// Sets a parameter from its whole values.
template <class Program>
void set(Program& program, std::string_view name, const std::vector<double>& whole) {
  for (const parallel::LocalParameter& parameter : program.stage().map())
    if (parameter.name == name)
      parallel::for_each_element(parameter, [&](Index local, Index element) {
        auto& held = program.stage().parameters()[static_cast<std::size_t>(local)];
        held = static_cast<std::remove_reference_t<decltype(held)>>(whole[static_cast<std::size_t>(element)]);
      });
}

/// The gradient of a parameter as far as this rank holds it, in its place in the whole; NaN elsewhere.
template <class Program>
std::vector<double> gradient(Program& program, std::string_view name) {
  std::vector<double> whole;
  for (const parallel::LocalParameter& parameter : program.stage().map())
    if (parameter.name == name) {
      whole.assign(static_cast<std::size_t>(parameter.whole_rows * parameter.whole_columns),
                   std::numeric_limits<double>::quiet_NaN());
      parallel::for_each_element(parameter, [&](Index local, Index element) {
        whole[static_cast<std::size_t>(element)] = program.stage().gradients()[static_cast<std::size_t>(local)];
      });
    }
  return whole;
}

/// Runs `act(program, rank)` on every rank of a strategy.
template <class Model, class S, class Act>
void with_programs(Act act) {
  run_ranks<S>(
      [&](Rank<S, Host>& rank) {
        parallel::Program<Model, S, double, Host, comm::Threads> program(rank.device(), rank.axes(), 1);
        act(program, rank);
      },
      {.threads_per_rank = 1});
}

/// Loss and gradients of a batch.
template <class Program>
parallel::BatchResult run_batch(Program& program, const Batch& batch, int micro_batches = 1) {
  return program.gradients(batch.shape(micro_batches), 0,
                           [&](Range samples, auto inputs, auto targets) { batch.fill(samples, inputs, targets); });
}

}  // namespace dtrain::test
