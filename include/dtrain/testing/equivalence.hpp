// Shows that two strategies train the same model to the same numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/testing/recorded_run.hpp"

namespace dtrain::testing {

namespace detail {

/// Compares the numbers of two runs and remembers the largest difference.
class Comparison {
 public:
  Comparison(std::string who, double tolerance) : who_(std::move(who)), tolerance_(tolerance) {}

  [[nodiscard]] double largest() const { return largest_; }

  void number(std::string_view what, double expected, double actual) {
    const double difference = relative(std::abs(actual - expected), std::abs(expected));
    if (!(difference <= tolerance_)) fail(concatenate("the ", what), expected, actual, difference);
    largest_ = std::max(largest_, difference);
  }

  void tensors(std::string_view what, const WholeTensors& expected, const WholeTensors& actual) {
    for (const auto& [name, unused] : actual)
      if (!expected.contains(name)) throw Error(concatenate(who_, " there is a ", what, " of ", name, " in one only."));
    for (const auto& [name, values] : expected) {
      const auto found = actual.find(name);
      if (found == actual.end() || found->second.size() != values.size())
        throw Error(concatenate(who_, " the ", what, " of ", name, " has ", values.size(), " elements in one and ",
                                found == actual.end() ? 0 : found->second.size(), " in the other."));
      tensor(what, name, values, found->second);
    }
  }

 private:
  static double relative(double difference, double scale) {
    if (difference == 0.0) return 0.0;
    return scale > 0.0 ? difference / scale : std::numeric_limits<double>::infinity();
  }
  void tensor(std::string_view what, const std::string& name, const std::vector<double>& expected,
              const std::vector<double>& actual) {
    double scale = 0.0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = relative(std::abs(actual[i] - expected[i]), scale);
      if (!(difference <= tolerance_))
        fail(concatenate("element ", i, " of the ", what, " of ", name), expected[i], actual[i], difference);
      largest_ = std::max(largest_, difference);
    }
  }
  [[noreturn]] void fail(const std::string& what, double expected, double actual, double difference) const {
    throw Error(concatenate(who_, " ", what, " is ", expected, " and ", actual, ": they differ by ", actual - expected,
                            ", relatively ", difference, ", and ", tolerance_, " is allowed."));
  }

  std::string who_;
  double tolerance_;
  double largest_ = 0.0;
};

}  // namespace detail

/// Compares two runs, step by step: loss, number of counted targets, gradients of every whole parameter before clipping
/// and optimizer, global norm, weights after the optimizer; the initial weights, bit by bit; and the evaluation loss.
/// A tensor differs by max |a - b| / max |b|, where b is of `expected`; a number by |a - b| / |b|.
/// Returns the largest difference; throws Error naming the parameter, the element and both values when one is above
/// `tolerance`.
inline double compare_runs(const RecordedRun& expected, const RecordedRun& actual, double tolerance = 1e-12) {
  const std::string who = concatenate("dtrain: under ", expected.strategy, " with ", expected.micro_batches,
                                      " micro-batches and under ", actual.strategy, " with ", actual.micro_batches);
  if (expected.steps.size() != actual.steps.size())
    throw Error(concatenate(who, " there are ", expected.steps.size(), " and ", actual.steps.size(), " steps."));
  detail::Comparison(who + ", before the first step,", 0.0).tensors("start", expected.start, actual.start);
  double largest = 0.0;
  for (std::size_t step = 0; step < expected.steps.size(); ++step) {
    const RecordedStep& a = expected.steps[step];
    const RecordedStep& b = actual.steps[step];
    detail::Comparison comparison(concatenate(who, ", in step ", step, ","), tolerance);
    if (a.tokens != b.tokens)
      throw Error(concatenate(who, ", in step ", step, ", there are ", a.tokens, " and ", b.tokens, " targets."));
    comparison.number("loss", a.loss, b.loss);
    comparison.tensors("gradient", a.gradients, b.gradients);
    comparison.number("global norm", a.gradient_norm, b.gradient_norm);
    comparison.tensors("weight", a.weights, b.weights);
    largest = std::max(largest, comparison.largest());
  }
  detail::Comparison last(who + ", after the last step,", tolerance);
  last.number("evaluation loss", expected.evaluation_loss, actual.evaluation_loss);
  return std::max(largest, last.largest());
}

/// How two strategies are compared.
struct EquivalenceOptions {
  RunOptions run{};  ///< of the first strategy
  /// Micro-batches of the second strategy; 0: as many as the first.
  int micro_batches = 0;
  double tolerance = 1e-12;
};

/// Trains `Model` for a few steps under `StrategyA` and under `StrategyB`, and compares them as `compare_runs` does.
/// The batch must divide over both strategies' data ranks and micro-batches.
template <class Model, class StrategyA, class StrategyB, NumberFormat Format = double>
double assert_equivalent(const EquivalenceOptions& options = {}) {
  RunOptions other = options.run;
  if (options.micro_batches > 0) other.micro_batches = options.micro_batches;
  return compare_runs(record_run<Model, StrategyA, Format>(options.run), record_run<Model, StrategyB, Format>(other),
                      options.tolerance);
}

}  // namespace dtrain::testing
