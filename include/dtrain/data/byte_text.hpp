// Text as bytes: a vocabulary of 256, windows of a fixed length, and the end of the text held out.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/data/corpus.hpp"
#include "dtrain/data/permutation.hpp"
#include "dtrain/data/position.hpp"
#include "dtrain/data/source.hpp"

namespace dtrain::data {

struct TextOptions {
  /// Bytes per sample.
  Index context = 256;
  /// The share of the text, from its end, that is kept for validation; 0 holds nothing out.
  double held_out = 0.1;
};

/// A `TokenSource` of bytes. Every byte predicts the one after it.
///
/// The text is cut once, after `size * (1 - held_out)` bytes, rounded down. Training windows do not overlap within an
/// epoch; every epoch shifts all of them by a random phase in [0, context) and shuffles them, both functions of
/// (seed, epoch). Validation windows cover the held-out part from its first byte to its last: each held-out byte but
/// the first is predicted exactly once, and the last window is filled up with ignored targets.
///
/// Copies share the bytes.
class ByteText {
 public:
  /// Reads a file or a directory, see `read_corpus`. Throws DataError when it cannot, or when the training part or
  /// the held-out part is shorter than one window and its last target; ConfigurationError for bad options.
  template <class Path>
    requires std::convertible_to<const Path&, std::filesystem::path>
  explicit ByteText(const Path& path, TextOptions options = {})
      : ByteText(std::vector<std::filesystem::path>{path}, options) {}

  /// Reads several, one after another.
  explicit ByteText(const std::vector<std::filesystem::path>& paths, TextOptions options = {})
      : ByteText(std::make_shared<const Corpus>(read_corpus(paths)), options) {}

  /// Takes text from memory.
  [[nodiscard]] static ByteText from_memory(std::string text, TextOptions options = {}) {
    return ByteText(std::make_shared<const Corpus>(Corpus{.bytes = std::move(text), .files = {}}), options);
  }

  [[nodiscard]] Index context() const { return context_; }
  [[nodiscard]] Index vocabulary() const { return 256; }
  [[nodiscard]] Index training_samples() const { return training_samples_; }
  [[nodiscard]] Index validation_samples() const { return validation_samples_; }
  [[nodiscard]] std::string_view training_text() const { return text().substr(0, training_size()); }
  [[nodiscard]] std::string_view validation_text() const { return text().substr(training_size()); }
  /// The files the text was read from, in order.
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return corpus_->files; }

  void fill_training(std::uint64_t seed, Position start, Range rows, TokenBatch batch) const {
    detail::check_batch("ByteText", rows, batch, context_);
    for (Index row = rows.begin; row < rows.end; ++row) {
      const Position sample = start.advanced(row, training_samples_);
      const Index window = Permutation(seed, sample.epoch, training_samples_)(sample.index);
      fill_row(phase(seed, sample.epoch) + window * context_, training_bytes_, batch, row - rows.begin);
    }
  }

  void fill_validation(Range rows, TokenBatch batch) const {
    detail::check_batch("ByteText", rows, batch, context_);
    for (Index row = rows.begin; row < rows.end; ++row)
      fill_row(training_bytes_ + row * context_, size(), batch, row - rows.begin);
  }

  /// Bytes as tokens, and tokens as bytes; tokens outside [0, 256) become '?'. Any bytes survive the round trip.
  [[nodiscard]] static std::vector<std::int32_t> encode(std::string_view bytes) {
    std::vector<std::int32_t> tokens;
    tokens.reserve(bytes.size());
    for (const char byte : bytes) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  [[nodiscard]] static std::string decode(std::span<const std::int32_t> tokens) {
    std::string bytes;
    bytes.reserve(tokens.size());
    for (const std::int32_t token : tokens)
      bytes += token >= 0 && token < 256 ? static_cast<char>(static_cast<unsigned char>(token)) : '?';
    return bytes;
  }

 private:
  ByteText(std::shared_ptr<const Corpus> corpus, TextOptions options)
      : corpus_(std::move(corpus)), context_(options.context) {
    if (context_ < 1)
      throw ConfigurationError(concatenate("ByteText: context is ", context_, ", but must be positive"));
    if (!(options.held_out >= 0 && options.held_out < 1))
      throw ConfigurationError(concatenate("ByteText: held_out is ", options.held_out, ", but must lie in [0, 1)"));
    training_bytes_ = static_cast<Index>(static_cast<double>(size()) * (1 - options.held_out));
    const Index held_out_bytes = size() - training_bytes_;
    require_window("training", training_bytes_);
    if (options.held_out > 0) require_window("held-out", held_out_bytes);
    // One window fewer than fit without a phase, so that all phases give the same number.
    training_samples_ = std::max<Index>(1, training_bytes_ / context_ - 1);
    validation_samples_ = options.held_out > 0 ? (held_out_bytes - 1 + context_ - 1) / context_ : 0;
  }

  void require_window(std::string_view part, Index bytes) const {
    if (bytes >= context_ + 1) return;
    throw DataError(concatenate("the text is too short: its ", part, " part has ", bytes, " of ", size(),
                                " bytes, but one window of ", context_, " bytes and the byte after it need ",
                                context_ + 1, "; give more text or a smaller context"));
  }

  [[nodiscard]] std::string_view text() const { return corpus_->bytes; }
  [[nodiscard]] Index size() const { return static_cast<Index>(corpus_->bytes.size()); }
  [[nodiscard]] std::size_t training_size() const { return static_cast<std::size_t>(training_bytes_); }

  /// Where the first window of an epoch begins.
  [[nodiscard]] Index phase(std::uint64_t seed, Index epoch) const {
    const Index slack = training_bytes_ - 1 - training_samples_ * context_;
    const auto phases = static_cast<std::uint64_t>(std::min(context_, slack + 1));
    const RandomStream stream(seed, hash_name("data.phase"), static_cast<std::uint64_t>(epoch));
    return static_cast<Index>((stream.bits(0) * phases) >> 32);
  }

  /// Writes the window at byte `begin`; positions whose next byte is not before `end` have nothing to predict.
  void fill_row(Index begin, Index end, const TokenBatch& batch, Index row) const {
    const auto inputs = detail::row_of(batch.inputs, row, context_);
    const auto targets = detail::row_of(batch.targets, row, context_);
    const auto predicted = static_cast<std::size_t>(std::clamp<Index>(end - 1 - begin, 0, context_));
    const auto* bytes = corpus_->bytes.data() + (predicted > 0 ? begin : 0);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = i < predicted ? static_cast<unsigned char>(bytes[i]) : 0;
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = i < predicted ? static_cast<unsigned char>(bytes[i + 1]) : ignore_index;
  }

  std::shared_ptr<const Corpus> corpus_;
  Index context_ = 0;
  Index training_bytes_ = 0;
  Index training_samples_ = 0;
  Index validation_samples_ = 0;
};

static_assert(TokenSource<ByteText>);

}  // namespace dtrain::data
