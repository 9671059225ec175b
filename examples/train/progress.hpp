// The progress of a run on a terminal: a bar with loss, tokens per second and the time that is left.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <dtrain/dtrain.hpp>

namespace example {

namespace dt = dtrain;

/// Redraws one line on a terminal; elsewhere (a file, a pipe) prints a line now and then.
class Progress {
 public:
  explicit Progress(dt::Index steps) : steps_(steps), begin_(Clock::now()), drawn_(begin_) {}

  void show(const dt::StepReport& report) {
    // A bare step's loss and speed jump about; what is shown is smoothed over some twenty steps.
    loss_ = report.step == 1 ? report.loss : 0.95 * loss_ + 0.05 * report.loss;
    tokens_ += static_cast<double>(report.tokens);
    const bool last = report.step == steps_;
    const bool due = terminal_ ? since(drawn_) > 0.1 : report.step % std::max<dt::Index>(steps_ / 20, 1) == 0;
    if (!last && !due) return;
    drawn_ = Clock::now();
    const double done = static_cast<double>(report.step) / static_cast<double>(steps_);
    const double spent = since(begin_);
    const double left = spent / done - spent;
    std::string bar(24, '.');
    std::fill_n(bar.begin(), static_cast<long>(done * 24), '#');
    std::printf("%s[%s] step %lld/%lld  loss %.4f  %.0f tokens/s  %.0f s left%s", terminal_ ? "\r" : "", bar.c_str(),
                static_cast<long long>(report.step), static_cast<long long>(steps_), loss_, tokens_ / spent, left,
                terminal_ && !last ? "   " : "\n");
    std::fflush(stdout);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  dt::Index steps_;
  Clock::time_point begin_;
  Clock::time_point drawn_;
  double loss_ = 0.0;
  double tokens_ = 0.0;
};

}  // namespace example
