// What a run shows of itself: a bar with loss, tokens per second and the time that is left; text that a terminal takes.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include <dtrain/dtrain.hpp>

namespace example {

namespace dt = dtrain;

/// "48 s", "3 min 05 s", "2 h 07 min".
inline std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::lround(std::max(seconds, 0.0)));
  const auto two_digits = [](long long number) { return dt::concatenate(number < 10 ? "0" : "", number); };
  if (whole < 60) return dt::concatenate(whole, " s");
  if (whole < 3600) return dt::concatenate(whole / 60, " min ", two_digits(whole % 60), " s");
  return dt::concatenate(whole / 3600, " h ", two_digits(whole / 60 % 60), " min");
}

/// Length of the UTF-8 character that `bytes` begin with; 0 where they begin with none.
inline std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::size_t length = at(0) < 0x80                    ? 1
                             : at(0) >= 0xc2 && at(0) < 0xe0 ? 2
                             : at(0) >= 0xe0 && at(0) < 0xf0 ? 3
                             : at(0) >= 0xf0 && at(0) < 0xf5 ? 4
                                                             : 0;
  if (length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  return length;
}

/// Bytes of a model that has not learned to write text may command a terminal or be no UTF-8: '?' stands for those.
inline std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    // The control characters are those below a space, and of two bytes those that begin with c2 80 to c2 9f.
    const bool control = length == 1 ? (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f
                                     : length == 2 && first == 0xc2 && static_cast<unsigned char>(bytes[1]) < 0xa0;
    if (length == 0 || control)
      text += '?';
    else
      text += bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

/// Redraws one line on a terminal; elsewhere (a file, a pipe) prints a line now and then.
class Progress {
 public:
  explicit Progress(dt::Index steps) : steps_(steps), begin_(Clock::now()), drawn_(begin_) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// What is printed after a run that ended early begins on a line of its own.
  ~Progress() {
    if (open_) std::fputs("\n", stdout);
    if (open_) std::fflush(stdout);
  }

  void show(const dt::StepReport& report) {
    // A bare step's loss jumps about; what is shown is smoothed over some twenty steps, fewer in a short run.
    const double share = std::clamp(20.0 / static_cast<double>(steps_), 0.05, 1.0);
    loss_ = report.step == 1 ? report.loss : (1.0 - share) * loss_ + share * report.loss;
    tokens_ += static_cast<double>(report.tokens);
    waiting_ += report.waiting_seconds;
    const bool last = report.step == steps_;
    const bool due = terminal_ ? since(drawn_) > 0.1 : report.step % std::max<dt::Index>(steps_ / 20, 1) == 0;
    if (!last && !due) return;
    drawn_ = Clock::now();
    open_ = terminal_ && !last;
    std::printf("%s%s%s", terminal_ ? "\r" : "", line(report).c_str(),
                terminal_ ? (last ? "\033[K\n" : "\033[K") : "\n");
    std::fflush(stdout);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

  [[nodiscard]] std::string line(const dt::StepReport& report) const {
    const double done = static_cast<double>(report.step) / static_cast<double>(steps_);
    const double spent = since(begin_);
    std::string bar(24, '.');
    std::fill_n(bar.begin(), static_cast<long>(done * 24), '#');
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "  loss %.4f  %.0f tokens/s  ", loss_, tokens_ / spent);
    const bool last = report.step == steps_;
    std::string text = dt::concatenate("[", bar, "] step ", report.step, "/", steps_, numbers, last ? "done in " : "",
                                       duration_text(last ? spent : spent / done - spent), last ? "" : " left");
    if (report.skipped_so_far > 0) text += dt::concatenate("  ", report.skipped_so_far, " skipped");
    // A run that waits for its data would be faster than its tokens per second say.
    if (waiting_ > 0.05 * spent)
      text += dt::concatenate("  ", std::lround(100 * waiting_ / spent), " % waiting for data");
    return text;
  }

  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  bool open_ = false;
  dt::Index steps_;
  Clock::time_point begin_;
  Clock::time_point drawn_;
  double loss_ = 0.0;
  double tokens_ = 0.0;
  double waiting_ = 0.0;
};

}  // namespace example
