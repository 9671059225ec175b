// Dense samples in memory, with one class each.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/data/permutation.hpp"
#include "dtrain/data/position.hpp"
#include "dtrain/data/source.hpp"

namespace dtrain::data {

struct FeatureArrayOptions {
  /// Numbers per sample.
  Index features = 0;
  /// Targets lie in [0, classes).
  Index classes = 0;
  /// Whether every epoch is shuffled; otherwise samples come in the order given.
  bool shuffle = true;
};

/// Samples of `features` numbers, row-major, and one target each: a class or `ignore_index`.
struct FeatureSamples {
  std::vector<double> inputs;
  std::vector<std::int32_t> targets;
};

/// A `FeatureSource` for classifiers. Numbers are held in double and converted to the type of the batch.
class FeatureArray {
 public:
  /// Throws ConfigurationError for options that are not positive, and DataError when there is no training sample, the
  /// inputs are not `features` per target, or a target is out of range.
  FeatureArray(FeatureArrayOptions options, FeatureSamples training, FeatureSamples validation = {})
      : options_(options), training_(std::move(training)), validation_(std::move(validation)) {
    if (options_.features < 1 || options_.classes < 1)
      throw ConfigurationError(concatenate("FeatureArray: features is ", options_.features, " and classes ",
                                           options_.classes, ", but both must be positive"));
    check("training", training_);
    check("validation", validation_);
    if (training_samples() == 0) throw DataError("FeatureArray: there is no training sample");
  }

  [[nodiscard]] Index features() const { return options_.features; }
  [[nodiscard]] Index classes() const { return options_.classes; }
  [[nodiscard]] Index training_samples() const { return samples(training_); }
  [[nodiscard]] Index validation_samples() const { return samples(validation_); }

  template <Scalar T>
  void fill_training(std::uint64_t seed, Position start, Range rows, FeatureBatch<T> batch) const {
    detail::check_batch("FeatureArray", rows, batch, features());
    for (Index row = rows.begin; row < rows.end; ++row) {
      const Position at = start.advanced(row, training_samples());
      const Index sample = options_.shuffle ? Permutation(seed, at.epoch, training_samples())(at.index) : at.index;
      fill_row(training_, sample, batch, row - rows.begin);
    }
  }

  template <Scalar T>
  void fill_validation(Range rows, FeatureBatch<T> batch) const {
    detail::check_batch("FeatureArray", rows, batch, features());
    for (Index row = rows.begin; row < rows.end; ++row) fill_row(validation_, row, batch, row - rows.begin);
  }

 private:
  static Index samples(const FeatureSamples& part) { return static_cast<Index>(part.targets.size()); }

  void check(std::string_view name, const FeatureSamples& part) const {
    if (static_cast<Index>(part.inputs.size()) != samples(part) * features())
      throw DataError(concatenate("FeatureArray: ", name, " has ", part.inputs.size(), " numbers, but ", samples(part),
                                  " targets of ", features(), " features need ", samples(part) * features()));
    for (const std::int32_t target : part.targets)
      if (target != ignore_index && (target < 0 || target >= classes()))
        throw DataError(concatenate("FeatureArray: ", name, " holds the target ", target, ", outside the ", classes(),
                                    " classes and not the ignored ", ignore_index));
  }

  template <class T>
  void fill_row(const FeatureSamples& part, Index sample, const FeatureBatch<T>& batch, Index row) const {
    const bool held = sample < samples(part);
    const auto inputs = detail::row_of(batch.inputs, row, features());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double number = held ? part.inputs[static_cast<std::size_t>(sample * features()) + i] : 0.0;
      inputs[i] = static_cast<T>(static_cast<Accumulator<T>>(number));
    }
    if (!batch.targets.empty())
      batch.targets[static_cast<std::size_t>(row)] =
          held ? part.targets[static_cast<std::size_t>(sample)] : ignore_index;
  }

  FeatureArrayOptions options_;
  FeatureSamples training_;
  FeatureSamples validation_;
};

static_assert(FeatureSource<FeatureArray, float> && FeatureSource<FeatureArray, double>);

}  // namespace dtrain::data
