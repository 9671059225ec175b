// Numbers and aligned columns as text for a terminal of 120.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::parallel::detail {

/// "1,234,567".
[[gnu::cold]] inline std::string count_text(Index count) {
  std::string text = concatenate(count);
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}
/// A number with one digit behind the point.
[[gnu::cold]] inline std::string decimal_text(double value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 1).ptr;
  return {digits, end};
}
[[gnu::cold]] inline std::string scaled_text(double value, double base, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return concatenate(unit == 0 && base == 1024.0 ? count_text(static_cast<Index>(value)) : decimal_text(value), " ",
                     units[unit]);
}
/// "1 stage", "3 stages".
[[gnu::cold]] inline std::string plural(Index count, std::string_view thing) {
  return concatenate(count_text(count), " ", thing, count == 1 ? "" : "s");
}
/// "64.0 KiB".
[[gnu::cold]] inline std::string bytes_text(Index bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled_text(static_cast<double>(bytes), 1024.0, units);
}
/// "3.1 GFLOP".
[[gnu::cold]] inline std::string flops_text(double flops) {
  constexpr std::array<std::string_view, 7> units{"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  return scaled_text(flops, 1000.0, units);
}
[[gnu::cold]] inline std::string percent_text(double share) { return decimal_text(100.0 * share) + " %"; }

inline constexpr std::size_t text_columns = 120;

/// Text in lines of at most `columns`, broken at `separator`, which stays at the end of a line.
[[gnu::cold]] inline std::vector<std::string> broken_text(std::string_view text, std::string_view separator,
                                                          std::size_t columns) {
  std::vector<std::string> lines{""};
  while (!text.empty()) {
    const std::size_t found = text.find(separator);
    const std::size_t length = found == std::string_view::npos ? text.size() : found + separator.size();
    if (!lines.back().empty() && lines.back().size() + length > columns) lines.emplace_back();
    lines.back() += text.substr(0, length);
    text.remove_prefix(length);
  }
  return lines;
}

/// Rows of cells whose columns are as wide as their widest cell. Columns of numbers stand right.
class TextTable {
 public:
  /// One character per column: 'l' or 'r'.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells) { rows_.push_back({std::move(cells), true}); }
  /// A line that keeps to no column.
  void line(std::string text) { rows_.push_back({{std::move(text)}, false}); }

  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths(alignment_.size(), 0);
    for (const Row& row : rows_)
      if (row.aligned)
        for (std::size_t c = 0; c < row.cells.size(); ++c) widths[c] = std::max(widths[c], row.cells[c].size());
    std::string out;
    for (const Row& row : rows_) {
      std::string line = "  ";
      if (!row.aligned) line += row.cells[0];
      for (std::size_t c = 0; row.aligned && c < row.cells.size(); ++c) {
        const std::string space(widths[c] - row.cells[c].size(), ' ');
        line += alignment_[c] == 'r' ? space + row.cells[c] : row.cells[c] + space;
        line += "  ";
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  struct Row {
    std::vector<std::string> cells;
    bool aligned;
  };
  std::string alignment_;
  std::vector<Row> rows_{};
};

}  // namespace dtrain::parallel::detail
