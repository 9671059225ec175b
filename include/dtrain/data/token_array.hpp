// Token sequences in memory, with explicit targets.
#pragma once

#include <algorithm>
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

struct TokenArrayOptions {
  /// Tokens per sample.
  Index context = 0;
  /// Tokens lie in [0, vocabulary).
  Index vocabulary = 0;
  /// Whether every epoch is shuffled; otherwise samples come in the order given.
  bool shuffle = true;
};

/// Samples of `context` inputs and as many targets, row-major. A target is a token or `ignore_index`.
struct TokenSamples {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

/// A `TokenSource` over tokens that the caller prepared: other tokenizers, packed documents, tests.
class TokenArray {
 public:
  /// Throws ConfigurationError for options that are not positive, and DataError when there is no training sample, a
  /// vector is no multiple of `context`, inputs and targets differ in length, or a token is out of range.
  TokenArray(TokenArrayOptions options, TokenSamples training, TokenSamples validation = {})
      : options_(options), training_(std::move(training)), validation_(std::move(validation)) {
    if (options_.context < 1 || options_.vocabulary < 1)
      throw ConfigurationError(concatenate("TokenArray: context is ", options_.context, " and vocabulary ",
                                           options_.vocabulary, ", but both must be positive"));
    check("training", training_);
    check("validation", validation_);
    if (training_samples() == 0) throw DataError("TokenArray: there is no training sample");
  }

  [[nodiscard]] Index context() const { return options_.context; }
  [[nodiscard]] Index vocabulary() const { return options_.vocabulary; }
  [[nodiscard]] Index training_samples() const { return samples(training_); }
  [[nodiscard]] Index validation_samples() const { return samples(validation_); }

  void fill_training(std::uint64_t seed, Position start, Range rows, TokenBatch batch) const {
    detail::check_batch("TokenArray", rows, batch, context());
    for (Index row = rows.begin; row < rows.end; ++row) {
      const Position at = start.advanced(row, training_samples());
      const Index sample = options_.shuffle ? Permutation(seed, at.epoch, training_samples())(at.index) : at.index;
      fill_row(training_, sample, batch, row - rows.begin);
    }
  }

  void fill_validation(Range rows, TokenBatch batch) const {
    detail::check_batch("TokenArray", rows, batch, context());
    for (Index row = rows.begin; row < rows.end; ++row) fill_row(validation_, row, batch, row - rows.begin);
  }

 private:
  [[nodiscard]] Index samples(const TokenSamples& part) const {
    return static_cast<Index>(part.inputs.size()) / options_.context;
  }

  void check(std::string_view name, const TokenSamples& part) const {
    if (part.inputs.size() != part.targets.size())
      throw DataError(concatenate("TokenArray: ", name, " has ", part.inputs.size(), " inputs but ",
                                  part.targets.size(), " targets"));
    if (static_cast<Index>(part.inputs.size()) % context() != 0)
      throw DataError(concatenate("TokenArray: ", name, " has ", part.inputs.size(),
                                  " tokens, not a multiple of the context, ", context()));
    const auto outside = [this](std::int32_t token) { return token < 0 || token >= vocabulary(); };
    for (const std::int32_t token : part.inputs)
      if (outside(token))
        throw DataError(concatenate("TokenArray: ", name, " holds the token ", token, ", outside the vocabulary of ",
                                    vocabulary()));
    for (const std::int32_t token : part.targets)
      if (token != ignore_index && outside(token))
        throw DataError(concatenate("TokenArray: ", name, " holds the target ", token, ", outside the vocabulary of ",
                                    vocabulary(), " and not the ignored ", ignore_index));
  }

  void fill_row(const TokenSamples& part, Index sample, const TokenBatch& batch, Index row) const {
    const auto inputs = detail::row_of(batch.inputs, row, context());
    const auto targets = detail::row_of(batch.targets, row, context());
    if (sample < samples(part)) {
      std::copy_n(part.inputs.begin() + sample * context(), inputs.size(), inputs.begin());
      std::copy_n(part.targets.begin() + sample * context(), targets.size(), targets.begin());
    } else {
      std::fill(inputs.begin(), inputs.end(), 0);
      std::fill(targets.begin(), targets.end(), ignore_index);
    }
  }

  TokenArrayOptions options_;
  TokenSamples training_;
  TokenSamples validation_;
};

static_assert(TokenSource<TokenArray>);

}  // namespace dtrain::data
