// Writes what a run says of itself to a file of JSON lines: one object per step, and a last one at the end.
#pragma once

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "dtrain/core/error.hpp"
#include "dtrain/core/json_text.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/train/reports.hpp"

namespace dtrain::train {

/// A metrics file. Each line is written whole and at once, so that a reader, or a run that dies, never sees half of
/// one.
class MetricsFile {
 public:
  /// Opens (and empties) the file. Throws DataError when it cannot be written.
  explicit MetricsFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (!file_) fail();
  }

  void write(const StepReport& report) {
    write(JsonText()
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
    write(JsonText()
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
