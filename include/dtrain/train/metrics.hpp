// Writes what a run says of itself to a file of JSON lines: one object per step, and a last one at the end.
#pragma once

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/train/reports.hpp"

namespace dtrain::train {

namespace detail {

/// One JSON object on one line. Numbers are written with all their digits; what is no number becomes null.
class JsonLine {
 public:
  JsonLine& add(std::string_view key, double value) {
    begin(key);
    char digits[64];
    if (!std::isfinite(value)) {
      text_ += "null";
      return *this;
    }
    const auto result = std::to_chars(digits, digits + sizeof digits, value);
    text_.append(digits, static_cast<std::size_t>(result.ptr - digits));
    return *this;
  }
  JsonLine& add(std::string_view key, Index value) {
    begin(key);
    text_ += concatenate(value);
    return *this;
  }
  JsonLine& add(std::string_view key, std::string_view value) {
    begin(key);
    quote(value);
    return *this;
  }
  [[nodiscard]] std::string finish() const { return text_ + "}\n"; }

 private:
  void begin(std::string_view key) {
    text_ += text_.size() > 1 ? ", " : "";
    quote(key);
    text_ += ": ";
  }
  void quote(std::string_view value) {
    text_ += '"';
    for (const char character : value) {
      if (character == '"' || character == '\\') {
        text_ += '\\';
        text_ += character;
      } else if (static_cast<unsigned char>(character) < 0x20) {
        constexpr std::string_view hex = "0123456789abcdef";
        text_ += "\\u00";
        text_ += hex[static_cast<unsigned char>(character) / 16];
        text_ += hex[static_cast<unsigned char>(character) % 16];
      } else {
        text_ += character;
      }
    }
    text_ += '"';
  }
  std::string text_ = "{";
};

}  // namespace detail

/// A metrics file. Each line is written whole and at once, so that a reader, or a run that dies, never sees half of
/// one.
class MetricsFile {
 public:
  /// Opens (and empties) the file. Throws DataError when it cannot be written.
  explicit MetricsFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (!file_) fail();
  }

  void write(const StepReport& report) {
    write(detail::JsonLine()
              .add("step", report.step)
              .add("loss", report.loss)
              .add("grad_norm", report.gradient_norm)
              .add("learning_rate", report.learning_rate)
              .add("tokens_per_second", report.tokens_per_second())
              .add("compute_tokens_per_second", report.compute_tokens_per_second())
              .add("seconds", report.seconds)
              .add("skipped", report.skipped_so_far)
              .add("loss_scale", report.loss_scale)
              .finish());
  }
  /// The last line of a run.
  void write_end(Index steps, double validation_loss, std::string_view strategy, double seconds) {
    write(detail::JsonLine()
              .add("event", std::string_view("end"))
              .add("validation_loss", validation_loss)
              .add("steps", steps)
              .add("strategy", strategy)
              .add("seconds", seconds)
              .finish());
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  void write(const std::string& line) {
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) fail();
  }
  [[noreturn]] void fail() const {
    throw DataError(
        concatenate("dtrain: metrics cannot be written to '", path_, "': ", std::generic_category().message(errno)));
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dtrain::train

namespace dtrain {
using train::MetricsFile;
}  // namespace dtrain
