// The equivalence grid as a program: trains small models under every combination, and compares each with one rank.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "dtrain/core/error.hpp"
#include "report.hpp"

namespace {

using dtrain::test::Report;

constexpr std::string_view usage =
    "dtrain_grid [--only TEXT] [--table FILE | --check-table FILE]\n"
    "  --only TEXT         run only the combinations whose model and strategy contain TEXT\n"
    "  --table FILE        write the table of what was run together between the markers in FILE\n"
    "  --check-table FILE  fail where FILE holds another table\n";

struct Options {
  std::string only;
  std::string table;
  bool write = false;
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--only" && name != "--table" && name != "--check-table")) return std::nullopt;
    (name == "--only" ? options.only : options.table) = argv[i + 1];
    options.write = options.write || name == "--table";
  }
  if (!options.only.empty() && !options.table.empty()) return std::nullopt;
  return options;
}

constexpr std::string_view begin_marker = "<!-- grid: begin -->\n";
constexpr std::string_view end_marker = "<!-- grid: end -->";

// Puts the table between the markers of a file, or says whether it stands there already.
bool take_table(const Options& options, const std::string& table) {
  std::ifstream in(options.table);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = text.find(begin_marker);
  const std::size_t end = text.find(end_marker);
  if (!in || begin == std::string::npos || end == std::string::npos || end < begin)
    throw dtrain::ConfigurationError(
        dtrain::concatenate("dtrain: ", options.table, " cannot be read, or lacks the lines ",
                            begin_marker.substr(0, begin_marker.size() - 1), " and ", end_marker, " in this order."));
  const std::size_t from = begin + begin_marker.size();
  if (text.substr(from, end - from) == table) return true;
  if (!options.write) return false;
  text.replace(from, end - from, table);
  std::ofstream out(options.table, std::ios::trunc);
  out << text;
  out.flush();
  if (!out) throw dtrain::Error(dtrain::concatenate("dtrain: ", options.table, " could not be written."));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = parse(argc, argv);
  if (!options) {
    std::fputs(usage.data(), stderr);
    return 2;
  }
  try {
    Report report(options->only, stdout);
    dtrain::test::run_gpt_data(report);
    dtrain::test::run_gpt_pipelines(report);
    dtrain::test::run_gpt_split_backward(report);
    dtrain::test::run_gpt_tensor(report);
    dtrain::test::run_gpt_sequence(report);
    dtrain::test::run_llama(report);
    dtrain::test::run_llama_tensor(report);
    dtrain::test::run_four_tensor_ranks(report);
    dtrain::test::run_sixteen_bits(report);
    std::printf("%s\n", report.summary().c_str());
    if (report.failed() > 0 || report.size() == 0) return 1;
    if (!options->table.empty() && !take_table(*options, report.table())) {
      std::fprintf(stderr, "grid: the table in %s is not that of these runs; `./dev test grid --table` writes it.\n%s",
                   options->table.c_str(), report.table().c_str());
      return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
