// What the equivalence grid has run: one line for each combination, and a table of what was run together.
#pragma once

#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/text.hpp"

namespace dtrain::test {

/// What the table tells apart.
enum class Part : unsigned {
  data,
  zero_1,
  zero_2,
  zero_3,
  hybrid,
  tensor,
  sequence,
  gpipe,
  one_forward_one_backward,
  interleaved,
  zero_bubble_h1,
  zero_bubble_v,
  full,
  every_nth,
  selective,
  chunked_loss,
  sixteen_bits,
  count
};
inline constexpr std::size_t part_count = static_cast<std::size_t>(Part::count);
inline constexpr std::array<std::string_view, part_count> part_names{
    "data",         "ZeRO 1",        "ZeRO 2",         "ZeRO 3",     "hybrid shards",
    "tensor",       "sequence",      "GPipe",          "1F1B",       "interleaved",
    "ZB-H1",        "ZB-V",          "recompute full", "every n-th", "recompute selective",
    "chunked loss", "16-bit numbers"};

/// A set of parts, one bit each.
using Parts = unsigned;
constexpr Parts set_of(Part part) { return 1u << static_cast<unsigned>(part); }

/// One run that was compared with one rank's.
struct Combination {
  std::string model{};
  std::string strategy{};
  int micro_batches = 1;
  Parts parts = 0;
  double difference = 0.0;
  double bound = 0.0;
  std::string failure{};  ///< empty where the run equalled
};

/// Collects combinations and prints each as it comes.
class Report {
 public:
  /// Combinations whose line lacks `only` are not run.
  explicit Report(std::string only, std::FILE* lines) : only_(std::move(only)), lines_(lines) {}

  [[nodiscard]] bool wants(const std::string& model, const std::string& strategy) const {
    return (model + " " + strategy).find(only_) != std::string::npos;
  }
  void add(Combination combination) {
    char number[32];
    std::snprintf(number, sizeof number, "%8.1e", combination.difference);
    const std::string line = concatenate(combination.failure.empty() ? number : "  FAILED", "  ", combination.model,
                                         ": ", combination.strategy, ", ", combination.micro_batches,
                                         combination.micro_batches == 1 ? " micro-batch" : " micro-batches");
    std::fprintf(lines_, "%s\n", line.c_str());
    if (!combination.failure.empty()) std::fprintf(lines_, "          %s\n", combination.failure.c_str());
    std::fflush(lines_);
    combinations_.push_back(std::move(combination));
  }

  [[nodiscard]] std::size_t size() const { return combinations_.size(); }
  [[nodiscard]] std::size_t failed() const {
    std::size_t count = 0;
    for (const Combination& combination : combinations_) count += combination.failure.empty() ? 0u : 1u;
    return count;
  }
  /// "238 combinations: 238 equal, 0 differ; largest difference 3.1e-13 in double (bound 1.0e-12), ...".
  [[nodiscard]] std::string summary() const {
    double exact = 0.0;
    double rounded = 0.0;
    double exact_bound = 0.0;
    double rounded_bound = 0.0;
    for (const Combination& combination : combinations_) {
      const bool narrow = (combination.parts & set_of(Part::sixteen_bits)) != 0;
      double& largest = narrow ? rounded : exact;
      double& bound = narrow ? rounded_bound : exact_bound;
      largest = largest > combination.difference ? largest : combination.difference;
      bound = bound > combination.bound ? bound : combination.bound;
    }
    char numbers[160];
    std::snprintf(numbers, sizeof numbers,
                  "largest difference %.1e in double (bound %.0e), %.1e in 16-bit numbers (bound %.0e)", exact,
                  exact_bound, rounded, rounded_bound);
    return concatenate("grid: ", combinations_.size(), " combinations, ", combinations_.size() - failed(), " equal, ",
                       failed(), " differ; ", numbers);
  }

  /// The markdown table: how many of the combinations that passed hold both parts; on the diagonal, how many hold the
  /// part.
  [[nodiscard]] std::string table() const {
    std::string text = "| |";
    for (const std::string_view name : part_names) text += concatenate(" ", name, " |");
    text += "\n|---|";
    for (std::size_t i = 0; i < part_count; ++i) text += "--:|";
    for (std::size_t row = 0; row < part_count; ++row) {
      text += concatenate("\n| ", part_names[row], " |");
      for (std::size_t column = 0; column < part_count; ++column)
        text += column > row ? std::string(" |") : concatenate(" ", cell(row, column), " |");
    }
    return text + "\n";
  }

 private:
  [[nodiscard]] std::string cell(std::size_t row, std::size_t column) const {
    const Parts both = (1u << row) | (1u << column);
    int count = 0;
    for (const Combination& combination : combinations_)
      count += combination.failure.empty() && (combination.parts & both) == both ? 1 : 0;
    if (count > 0) return concatenate(count);
    return refused(both) ? "refused" : exclusive(both) ? "" : "·";
  }
  // What the compiler refuses, in a sentence: a schedule that splits the backward pass would recompute twice.
  static bool refused(Parts both) {
    const Parts split = set_of(Part::zero_bubble_h1) | set_of(Part::zero_bubble_v);
    const Parts again = set_of(Part::full) | set_of(Part::every_nth) | set_of(Part::selective);
    return (both & split) != 0 && (both & again) != 0;
  }
  // A strategy has one schedule, one level of ZeRO, and recomputes all blocks or every n-th.
  static bool exclusive(Parts both) {
    const Parts levels = set_of(Part::zero_1) | set_of(Part::zero_2) | set_of(Part::zero_3);
    const Parts schedules = set_of(Part::gpipe) | set_of(Part::one_forward_one_backward) | set_of(Part::interleaved) |
                            set_of(Part::zero_bubble_h1) | set_of(Part::zero_bubble_v);
    const Parts blocks = set_of(Part::full) | set_of(Part::every_nth);
    return (both & ~levels) == 0 || (both & ~schedules) == 0 || (both & ~blocks) == 0;
  }

  std::string only_;
  std::FILE* lines_;
  std::vector<Combination> combinations_{};
};

// The parts of the grid: one source each, which holds the units of one model and one tensor axis or two.
void run_gpt_data(Report& report);
void run_gpt_pipelines(Report& report);
void run_gpt_split_backward(Report& report);
void run_gpt_tensor(Report& report);
void run_gpt_sequence(Report& report);
void run_llama(Report& report);
void run_llama_tensor(Report& report);
void run_four_tensor_ranks(Report& report);
void run_sixteen_bits(Report& report);

}  // namespace dtrain::test
