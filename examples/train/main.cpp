// Trains a small language model on text: `dtrain_train train [options]`, `dtrain_train explain [STRATEGY] [options]`.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include <dtrain/dtrain.hpp>

#include "registry.hpp"

namespace {

namespace dt = dtrain;
using example::Options;

std::string known_strategies() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : example::registry()) names.push_back(name);
  return dt::join(names);
}

// Largest batch and number of micro-batches: far more than a laptop can hold, and safe to multiply.
constexpr long long most_sequences = 1'000'000;

void require_within(const char* option, long long value, long long least,
                    long long most = std::numeric_limits<long long>::max()) {
  if (value < least)
    throw dt::ConfigurationError(
        dt::concatenate("dtrain: ", option, " is ", value, "; it must be at least ", least, "."));
  if (value > most)
    throw dt::ConfigurationError(
        dt::concatenate("dtrain: ", option, " is ", value, "; it must be at most ", most, "."));
}

// The whole of `text` as a number that fits, or what is wrong with it: CLI11 takes numbers that are too large for the
// largest one.
template <class Number>
std::string fault_of(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) return dt::concatenate(text, " is too large");
  if (error != std::errc{} || read != end)
    return dt::concatenate("'", text, "' is not a ", std::is_integral_v<Number> ? "whole number" : "number");
  return {};
}

void check(const Options& options) {
  if (!example::registry().contains(options.strategy))
    throw dt::ConfigurationError(dt::concatenate("dtrain: there is no strategy '", options.strategy,
                                                 "' in this program. It knows: ", known_strategies(), "."));
  require_within("--steps", options.steps, 1);
  require_within("--seed", options.seed, 0);
  require_within("--batch", options.batch, 1, most_sequences);
  if (options.micro_batches_given) require_within("--micro-batches", options.micro_batches, 1, options.batch);
  if (!(options.learning_rate > 0.0) || !(options.learning_rate < 1e30))
    throw dt::ConfigurationError(
        dt::concatenate("dtrain: --learning-rate is ", options.learning_rate, "; it must be a number above 0."));
}

void write_file(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush())
    throw dt::DataError(dt::concatenate("dtrain: ", option, " cannot be written to '", path, "'; name another file."));
}

void explain_with(const example::Entry& entry, const Options& options) {
  const dt::parallel::Explanation program = entry.explain(options);
  std::printf("%s", dt::parallel::describe(program).c_str());
  std::fflush(stdout);
  if (!options.picture.empty())
    write_file("--picture", options.picture, dt::schedule::svg(program.tables, {}, program.strategy));
  if (options.json.empty()) return;
  entry.require_memory(options);
  write_file("--json", options.json, dt::parallel::json_of(program, entry.allocate(options)));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a byte-level GPT under a strategy of data, tensor and pipeline parallelism.", "dtrain_train");
  app.require_subcommand(1);
  Options options;
  const auto shared = [&](CLI::App* verb) {
    verb->add_option("--steps", options.steps, "Training steps")->check(&fault_of<long long>)->capture_default_str();
    verb->add_option("--batch", options.batch, "Sequences of the global batch")
        ->check(&fault_of<long long>)
        ->capture_default_str();
    verb->add_option("--micro-batches", options.micro_batches,
                     "Parts of a data rank's batch; default: as many as pipeline stages, where the batch allows")
        ->check(&fault_of<long long>);
    verb->add_option("--seed", options.seed, "Of weights and data order")
        ->check(&fault_of<long long>)
        ->capture_default_str();
    verb->add_option("--learning-rate", options.learning_rate, "Peak of the cosine")
        ->check(&fault_of<double>)
        ->capture_default_str();
  };
  CLI::App* train = app.add_subcommand("train", "Train, print progress, and write metrics");
  shared(train);
  train->add_option("--data", options.data, "Files or directories of text")->required();
  train->add_option("--metrics", options.metrics, "File of JSON lines")->capture_default_str();
  train->add_option("--strategy", options.strategy, "One of: " + known_strategies())->capture_default_str();
  CLI::App* explain = app.add_subcommand("explain", "Print what a strategy lowers to");
  shared(explain);
  explain->add_option("strategy,--strategy", options.strategy, "One of: " + known_strategies())->capture_default_str();
  explain->add_option("--json", options.json, "File of the bytes by rank and kind, the calls and the schedule");
  explain->add_option("--picture", options.picture, "File of the schedule as a picture (SVG)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::Error& error) {
    std::fprintf(stderr, "dtrain: %s. See --help.\n", error.what());
    return 2;
  }
  try {
    options.micro_batches_given = train->count("--micro-batches") + explain->count("--micro-batches") > 0;
    check(options);
    const example::Entry& entry = example::registry().at(options.strategy);
    if (train->parsed()) return entry.train(options);
    explain_with(entry, options);
    return 0;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "%s%s\n", text.starts_with("dtrain:") ? "" : "dtrain: ", error.what());
    return 2;
  }
}
