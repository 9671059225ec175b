// Schedules as text: reads and writes the files of compute orders that torchtitan takes as custom schedules.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/schedule_orders.hpp"

namespace dtrain::schedule {

namespace detail {

// Reads one file. Places in it are counted from 1.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  [[gnu::cold]] Orders orders() {
    read_lines();
    Orders orders{.name = std::string(name_), .micro_batches = micro_batches_};
    const VirtualPipeline pipeline = find_pipeline();
    orders.chunks = pipeline.chunks;
    orders.placement = pipeline.placement;
    for (const std::vector<Cell>& line : lines_) {
      std::vector<Compute>& order = orders.of_stages.emplace_back();
      for (const Cell& cell : line) order.push_back({cell.work, cell.micro_batch, pipeline.place(cell.stage).chunk});
    }
    return orders;
  }

 private:
  struct Cell {
    int stage = 0;  // numbers virtual stages, as the files do
    Work work = Work::forward;
    int micro_batch = 0;
    int line = 0;
    int column = 0;
  };
  // Where a virtual stage is first computed.
  struct Home {
    int line = 0;
    int column = 0;
  };

  [[noreturn]] void fail(int line, int column, std::string_view finding) const {
    throw ConfigurationError(
        concatenate("dtrain: schedule ", name_, ", line ", line, ", column ", column, ": ", finding));
  }
  [[noreturn]] void fail(std::string_view finding) const {
    throw ConfigurationError(concatenate("dtrain: schedule ", name_, " ", finding));
  }

  // One line per stage, cells between commas; empty lines at the end are no stages.
  void read_lines() {
    std::size_t end = text_.size();
    while (end > 0 && is_space(text_[end - 1])) --end;
    if (end == 0) fail("is empty; it needs one line per stage");
    int line = 1;
    for (std::size_t begin = 0; begin <= end; ++line) {
      const std::size_t stop = std::min(text_.find('\n', begin), end);
      read_line(text_.substr(begin, stop - begin), line);
      begin = stop + 1;
    }
  }
  void read_line(std::string_view text, int line) {
    lines_.emplace_back();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t stop = std::min(text.find(',', begin), text.size());
      std::size_t first = begin;
      std::size_t last = stop;
      while (first < last && is_space(text[first])) ++first;
      while (last > first && is_space(text[last - 1])) --last;
      if (first < last) read_cell(text.substr(first, last - first), line, static_cast<int>(first) + 1);
      begin = stop + 1;
    }
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

  // `2B1`: virtual stage, letter, micro-batch.
  void read_cell(std::string_view text, int line, int column) {
    Cell cell{.line = line, .column = column};
    std::string_view rest = text;
    if (!read_number(rest, cell.stage)) fail_cell(text, line, column);
    std::size_t letters = 0;
    while (letters < rest.size() && (rest[letters] < '0' || rest[letters] > '9')) ++letters;
    const std::string_view action = rest.substr(0, letters);
    rest.remove_prefix(letters);
    if (action == "F")
      cell.work = Work::forward;
    else if (action == "B")
      cell.work = Work::backward;
    else if (action == "I")
      cell.work = Work::backward_input;
    else if (action == "W")
      cell.work = Work::backward_weight;
    else
      fail_cell(text, line, column);
    if (!read_number(rest, cell.micro_batch) || !rest.empty()) fail_cell(text, line, column);
    if (static_cast<std::size_t>(cell.stage) >= homes_.size()) homes_.resize(static_cast<std::size_t>(cell.stage) + 1);
    Home& home = homes_[static_cast<std::size_t>(cell.stage)];
    if (home.line == 0) home = {line, column};
    if (home.line != line)
      fail(line, column,
           concatenate("'", text, "' computes stage ", cell.stage, ", which line ", home.line, " computes too"));
    micro_batches_ = std::max(micro_batches_, cell.micro_batch + 1);
    lines_.back().push_back(cell);
  }
  [[noreturn]] void fail_cell(std::string_view text, int line, int column) const {
    fail(line, column,
         concatenate("'", text,
                     "' is no computation; one is a stage, F, B, I or W (forward, backward, backward of the input, "
                     "backward of the weights) and a micro-batch, such as 0F3. Messages are derived and not written."));
  }
  static bool read_number(std::string_view& rest, int& number) {
    constexpr int most = 65535;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || number < 0 || number > most) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
  }

  // How the virtual stages lie on the lines: in loops or in a V.
  [[nodiscard]] VirtualPipeline find_pipeline() const {
    const int stages = static_cast<int>(lines_.size());
    const int all = static_cast<int>(homes_.size());
    for (int number = 0; number < all; ++number)
      if (homes_[static_cast<std::size_t>(number)].line == 0)
        fail(concatenate("computes stage ", all - 1, " and never stage ", number));
    if (all % stages != 0)
      fail(concatenate("has ", all, " stages, which its ", stages, " lines cannot share out evenly"));
    const VirtualPipeline loops{stages, all / stages, Placement::looped};
    if (fits(loops)) return loops;
    const VirtualPipeline v{stages, 2, Placement::v_shaped};
    if (all == 2 * stages && fits(v)) return v;
    int number = 0;
    while (loops.place(number).stage + 1 == homes_[static_cast<std::size_t>(number)].line) ++number;
    const Home home = homes_[static_cast<std::size_t>(number)];
    fail(home.line, home.column,
         concatenate("stage ", number, " lies on line ", home.line, "; stages lie in loops (this one on line ",
                     loops.place(number).stage + 1, ") or, two on each line, in a V"));
  }
  [[nodiscard]] bool fits(const VirtualPipeline& pipeline) const {
    for (int number = 0; number < static_cast<int>(homes_.size()); ++number)
      if (pipeline.place(number).stage + 1 != homes_[static_cast<std::size_t>(number)].line) return false;
    return true;
  }

  std::string_view text_;
  std::string_view name_;
  std::vector<std::vector<Cell>> lines_;
  std::vector<Home> homes_;
  int micro_batches_ = 0;
};

}  // namespace detail

/// The compute orders of a custom schedule as PyTorch's pipelining and torchtitan write them: one line per rank, cells
/// between commas, in each a virtual stage, a letter and a micro-batch: `0F3`. F is a forward, B a whole backward, I
/// and W its two parts, for the input and for the weights. Empty cells are idle time units and say nothing. Throws
/// ConfigurationError with line and column where the text is something else, `name` stands for the file. Whether the
/// orders can run is what `judged_tables` says.
[[nodiscard, gnu::cold]] inline Orders parse_csv(std::string_view text, std::string_view name = "of the text") {
  return detail::CsvReader(text, name).orders();
}

/// The same orders as text, without idle cells.
[[nodiscard, gnu::cold]] inline std::string csv_of(const Orders& orders) {
  const VirtualPipeline pipeline = orders.pipeline();
  std::string text;
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    bool first = true;
    for (const Compute& item : orders.of_stages[static_cast<std::size_t>(stage)]) {
      text += concatenate(first ? "" : ",", pipeline.virtual_stage({stage, item.chunk}),
                          detail::letter_of(action_of(item.work)), item.micro_batch);
      first = false;
    }
    text += '\n';
  }
  return text;
}

}  // namespace dtrain::schedule
