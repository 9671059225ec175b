// Schedules as pictures: who computes what when, as an SVG.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_replay.hpp"

namespace dtrain::schedule {

namespace detail {

// Draws one picture. Lengths are in pixels.
class Picture {
 public:
  Picture(std::span<const Table> tables, const Costs& costs, std::string_view title)
      : tables_(tables),
        costs_(costs),
        pipeline_(pipeline_of(tables)),
        replay_(tables, costs, Waiting::at_use),
        title_(title) {
    if (!replay_.finished())
      throw ConfigurationError("dtrain: tables that never finish have no picture; judge them first");
    double shortest = 0;
    for (int stage = 0; stage < pipeline_.stages; ++stage) {
      longest_ = std::max(longest_, replay_.clock(stage));
      for (const Action& action : actions(stage)) {
        const double cost = costs_.of(action.kind);
        if (cost > 0 && (shortest == 0 || cost < shortest)) shortest = cost;
        used_[static_cast<std::size_t>(action.kind)] = true;
      }
    }
    unit_ = shortest > 0 ? narrowest / shortest : 1;
    width_ = std::max(left + unit_ * longest_ + margin, least_width);
  }

  [[gnu::cold]] std::string text() {
    const double top = margin + heading;
    const double bottom = top + pipeline_.stages * row_step;
    const double height = bottom + axis + legend_height() + margin;
    out_ = concatenate("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width_, "\" height=\"", height,
                       "\" viewBox=\"0 0 ", width_, ' ', height,
                       "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n");
    rectangle(0, 0, width_, height, "#ffffff", "");
    words(margin, margin + 14, "start", "#222222", concatenate(escaped(title_), title_.empty() ? "" : ": ", summary()));
    for (int stage = 0; stage < pipeline_.stages; ++stage) row(stage, top + stage * row_step);
    words(left, bottom + 16, "start", "#666666", "0");
    words(left + unit_ * longest_, bottom + 16, "end", "#666666", concatenate(longest_));
    words(left + unit_ * longest_ / 2, bottom + 16, "middle", "#666666", "time");
    legend(bottom + axis);
    return out_ += "</svg>\n";
  }

 private:
  static constexpr double margin = 12;
  static constexpr double left = 76;
  static constexpr double heading = 28;
  static constexpr double row_step = 30;
  static constexpr double row_height = 26;
  static constexpr double axis = 28;
  static constexpr double narrowest = 20;
  static constexpr double least_width = 560;
  static constexpr double legend_step = 24;
  static constexpr std::string_view idle = "#e4e4e4";

  [[nodiscard]] const std::vector<Action>& actions(int stage) const {
    return tables_[static_cast<std::size_t>(stage)].actions;
  }

  [[nodiscard]] std::string summary() const {
    double busy = 0;
    for (int stage = 0; stage < pipeline_.stages; ++stage)
      for (const Action& action : actions(stage)) busy += costs_.of(action.kind);
    const double all = pipeline_.stages * longest_;
    const double bubble = all > 0 ? 100 * (1 - busy / all) : 0;
    return concatenate(pipeline_.stages, pipeline_.stages == 1 ? " stage" : " stages",
                       pipeline_.chunks > 1 ? concatenate(" of ", pipeline_.chunks, " chunks") : std::string(),
                       ", idle for ", static_cast<double>(static_cast<long long>(bubble * 10 + 0.5)) / 10, " %");
  }

  void row(int stage, double y) {
    words(left - 8, y + 17, "end", "#222222", concatenate("stage ", stage));
    rectangle(left, y, unit_ * longest_, row_height, idle, "");
    for (std::size_t i = 0; i < actions(stage).size(); ++i) {
      const Action& action = actions(stage)[i];
      const double cost = costs_.of(action.kind);
      if (!is_compute(action.kind) || cost <= 0) continue;
      const double x = left + unit_ * replay_.begin_of(stage, static_cast<int>(i));
      rectangle(x, y, unit_ * cost, row_height, colour(action.kind, action.chunk), " stroke=\"#ffffff\"");
      words(x + unit_ * cost / 2, y + 17, "middle", ink(action.chunk), concatenate(action.micro_batch));
    }
  }

  [[nodiscard]] double legend_height() const { return legend_step * (pipeline_.chunks + 1); }
  // One line per chunk, one for idle time.
  void legend(double y) {
    struct Entry {
      ActionKind kind;
      std::string_view name;
    };
    constexpr std::array<Entry, 4> entries{{{ActionKind::forward, "forward"},
                                            {ActionKind::backward, "backward"},
                                            {ActionKind::backward_input, "backward of the input"},
                                            {ActionKind::backward_weight, "backward of the weights"}}};
    for (int chunk = 0; chunk < pipeline_.chunks; ++chunk, y += legend_step) {
      double x = left;
      if (pipeline_.chunks > 1) words(left - 8, y + 13, "end", "#222222", concatenate("chunk ", chunk));
      for (const Entry& entry : entries) {
        if (!used_[static_cast<std::size_t>(entry.kind)]) continue;
        rectangle(x, y, 18, 16, colour(entry.kind, chunk), "");
        words(x + 24, y + 13, "start", "#222222", entry.name);
        x += 48 + 6.4 * static_cast<double>(entry.name.size());
      }
    }
    rectangle(left, y, 18, 16, idle, "");
    words(left + 24, y + 13, "start", "#222222", "idle; numbers are micro-batches");
  }

  // Later chunks are paler.
  [[nodiscard]] std::string colour(ActionKind kind, int chunk) const {
    std::array<int, 3> base{};
    switch (kind) {
      case ActionKind::forward:
        base = {38, 98, 170};
        break;
      case ActionKind::backward:
        base = {28, 128, 84};
        break;
      case ActionKind::backward_input:
        base = {14, 138, 132};
        break;
      default:
        base = {196, 100, 18};
        break;
    }
    const double paler = pipeline_.chunks > 1 ? 0.62 * chunk / (pipeline_.chunks - 1) : 0;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text = "#";
    for (const int part : base) {
      const auto value = static_cast<std::size_t>(part + paler * (255 - part));
      text += digits[value / 16];
      text += digits[value % 16];
    }
    return text;
  }
  [[nodiscard]] std::string_view ink(int chunk) const { return 2 * chunk < pipeline_.chunks ? "#ffffff" : "#111111"; }

  void rectangle(double x, double y, double width, double height, std::string_view fill, std::string_view more) {
    out_ += concatenate("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", height, "\" fill=\"", fill,
                        "\"", more, "/>\n");
  }
  void words(double x, double y, std::string_view anchor, std::string_view fill, std::string_view text) {
    out_ += concatenate("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\" fill=\"", fill, "\">", text,
                        "</text>\n");
  }
  [[nodiscard]] static std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
      if (c == '&')
        result += "&amp;";
      else if (c == '<')
        result += "&lt;";
      else if (c == '>')
        result += "&gt;";
      else
        result += c;
    }
    return result;
  }

  std::span<const Table> tables_;
  Costs costs_;
  VirtualPipeline pipeline_;
  Replay replay_;
  std::string_view title_;
  std::array<bool, action_kinds> used_{};
  double longest_ = 0;
  double unit_ = 1;
  double width_ = 0;
  std::string out_;
};

}  // namespace detail

/// A picture of tables that have been judged sound, as the text of an SVG: one row per stage, along it every
/// computation in its time and with the number of its micro-batch, grey where the stage waits, and a legend.
/// Computations cost what `costs` says; later chunks are paler. Throws ConfigurationError for tables that never finish.
[[nodiscard, gnu::cold]] inline std::string svg(std::span<const Table> tables, const Costs& costs = {},
                                                std::string_view title = {}) {
  return detail::Picture(tables, costs, title).text();
}

}  // namespace dtrain::schedule
