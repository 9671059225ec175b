// What the trainer asks of data: sources that fill any rows of any batch without knowing of ranks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/data/position.hpp"

namespace dtrain::data {

/// A target that no loss is computed for and that does not count as a token.
inline constexpr std::int32_t ignore_index = -100;

/// Rows to be filled: `samples` x `context` tokens and as many targets, row-major, in memory of the caller. An empty
/// span is not filled: the first pipeline stage wants inputs only, the last one targets only.
struct TokenBatch {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> targets;
  Index samples = 0;
  Index context = 0;
};

/// Rows to be filled: `samples` x `features` numbers and one class per sample. An empty span is not filled.
template <class T>
struct FeatureBatch {
  std::span<T> inputs;
  std::span<std::int32_t> targets;
  Index samples = 0;
  Index features = 0;
};

/// Token sequences for a language model. Reading is pure: it changes nothing in the source, draws from no shared
/// random state, and any thread or rank may read any rows at any time.
///
/// - `context()`: tokens per sample; `vocabulary()`: tokens are in [0, vocabulary).
/// - `training_samples()`: samples per epoch, the same in every epoch.
/// - `fill_training(seed, start, rows, batch)`: row r of `rows` becomes sample `start.advanced(r)` of the order that
///   `seed` shuffles. `rows` are rows of the global batch that begins at `start`.
/// - `validation_samples()`: held-out samples, 0 when nothing is held out.
/// - `fill_validation(rows, batch)`: held-out samples in order; rows past the last one have inputs 0 and targets
///   `ignore_index`, so that ranks with uneven shares still run the same number of batches.
///
/// Both fills throw ConfigurationError when the batch's sizes do not agree with `rows` or with the source.
template <class Type>
concept TokenSource = requires(const Type& source, std::uint64_t seed, Position start, Range rows, TokenBatch batch) {
  { source.context() } -> std::same_as<Index>;
  { source.vocabulary() } -> std::same_as<Index>;
  { source.training_samples() } -> std::same_as<Index>;
  { source.validation_samples() } -> std::same_as<Index>;
  source.fill_training(seed, start, rows, batch);
  source.fill_validation(rows, batch);
};

/// Dense samples with one class each; the functions are those of `TokenSource`, with `features()` numbers per sample
/// in place of `context()` tokens and targets in [0, classes()).
template <class Type, class T>
concept FeatureSource =
    requires(const Type& source, std::uint64_t seed, Position start, Range rows, FeatureBatch<T> batch) {
      { source.features() } -> std::same_as<Index>;
      { source.classes() } -> std::same_as<Index>;
      { source.training_samples() } -> std::same_as<Index>;
      { source.validation_samples() } -> std::same_as<Index>;
      source.fill_training(seed, start, rows, batch);
      source.fill_validation(rows, batch);
    };

namespace detail {

/// The sizes of a batch against what the source writes: a wrong one would write past somebody's memory.
inline void check_batch(std::string_view source, std::string_view unit, Range rows, Index samples, Index width,
                        Index source_width, std::size_t inputs, std::size_t targets, Index targets_per_sample) {
  if (rows.begin < 0 || rows.size() < 0 || rows.size() != samples)
    throw ConfigurationError(concatenate(source, ": rows ", rows.begin, " to ", rows.end,
                                         " were asked for into a batch of ", samples, " samples"));
  if (width != source_width)
    throw ConfigurationError(
        concatenate(source, ": samples have ", source_width, " ", unit, ", but the batch to fill has ", width));
  if (inputs != 0 && inputs != static_cast<std::size_t>(samples * width))
    throw ConfigurationError(concatenate(source, ": the batch has room for ", inputs, " inputs, but ", samples,
                                         " samples of ", width, " ", unit, " need ", samples * width));
  if (targets != 0 && targets != static_cast<std::size_t>(samples * targets_per_sample))
    throw ConfigurationError(concatenate(source, ": the batch has room for ", targets, " targets, but ", samples,
                                         " samples need ", samples * targets_per_sample));
}

inline void check_batch(std::string_view source, Range rows, const TokenBatch& batch, Index context) {
  check_batch(source, "tokens", rows, batch.samples, batch.context, context, batch.inputs.size(), batch.targets.size(),
              context);
}

template <class T>
void check_batch(std::string_view source, Range rows, const FeatureBatch<T>& batch, Index features) {
  check_batch(source, "features", rows, batch.samples, batch.features, features, batch.inputs.size(),
              batch.targets.size(), 1);
}

/// Row `row` of a batch whose rows are `width` long; empty when the batch has none.
template <class T>
std::span<T> row_of(std::span<T> all, Index row, Index width) {
  if (all.empty()) return {};
  return all.subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
}

}  // namespace detail

}  // namespace dtrain::data
