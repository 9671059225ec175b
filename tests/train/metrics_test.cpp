// The metrics file: JSON lines that any reader can parse, each written whole.
#include "dtrain/train/metrics.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using namespace dtrain;
using nlohmann::json;

// A file in a folder of its own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "dtrain_metrics_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::vector<json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

StepReport some_report() {
  return {.step = 3,
          .loss = 2.0 / 3.0,
          .gradient_norm = 1e-17,
          .learning_rate = 3e-4,
          .tokens = 128,
          .counted_tokens = 100,
          .seconds = 1.0,
          .waiting_seconds = 0.5,
          .skipped_so_far = 2,
          .loss_scale = 1024.0};
}

std::string refusal(const std::string& path) {
  try {
    MetricsFile file(path);
  } catch (const DataError& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST_CASE("every step is one line with the numbers of its report, to the last digit") {
  const Folder folder;
  const std::string path = folder.file("metrics.jsonl");
  {
    MetricsFile metrics(path);
    metrics.write(some_report());
    // A reader sees the line before the file is closed.
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 1);
    const json& line = lines[0];
    CHECK(line.at("step") == 3);
    CHECK(line.at("step").is_number_integer());
    CHECK(line.at("loss").get<double>() == 2.0 / 3.0);
    CHECK(line.at("grad_norm").get<double>() == 1e-17);
    CHECK(line.at("learning_rate").get<double>() == 3e-4);
    CHECK(line.at("seconds").get<double>() == 1.0);
    CHECK(line.at("skipped") == 2);
    CHECK(line.at("loss_scale") == 1024.0);
    // fault I4
    CHECK(line.at("tokens_per_second").get<double>() == 128.0);
    CHECK(line.at("compute_tokens_per_second").get<double>() == 256.0);
    metrics.write_end(3, 1.875, "dp2", 89.25);
  }
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] ==
        json{{"event", "end"}, {"validation_loss", 1.875}, {"steps", 3}, {"strategy", "dp2"}, {"seconds", 89.25}});
}

TEST_CASE("what is not a finite number becomes null, and the line stays JSON") {
  const Folder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsFile metrics(path);
  StepReport report = some_report();
  report.loss = std::nan("");
  report.gradient_norm = std::numeric_limits<double>::infinity();
  report.learning_rate = -std::numeric_limits<double>::infinity();
  metrics.write(report);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("loss").is_null());
  CHECK(lines[0].at("grad_norm").is_null());
  CHECK(lines[0].at("learning_rate").is_null());
  CHECK(lines[0].at("step") == 3);
}

TEST_CASE("any text survives as a string, control characters, quotes and UTF-8 among them") {
  const Folder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsFile metrics(path);
  const std::string name = "a\"b\\c\n\t\x01\x1f é 漢";
  metrics.write_end(0, 0.0, name, 0.0);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("strategy") == name);
}

TEST_CASE("numbers of any size keep all their digits") {
  for (const double value : {0.0, -0.0, 0.1, 1e300, 5e-324, 123456789.0, 1.0 / 3.0}) {
    const json line = json::parse(JsonText().add("x", value).finish());
    CHECK(line.at("x").get<double>() == value);
  }
  const json line =
      json::parse(JsonText().add("least", std::numeric_limits<Index>::min()).add("most", Index{1} << 62).finish());
  CHECK(line.at("least").get<Index>() == std::numeric_limits<Index>::min());
  CHECK(line.at("most").get<Index>() == Index{1} << 62);
  CHECK(JsonText().finish() == "{}\n");
}

TEST_CASE("a path that cannot be written is refused in a sentence that names it and the reason") {
  const Folder folder;
  CHECK(refusal(folder.file("missing/metrics.jsonl")) == "dtrain: metrics cannot be written to '" +
                                                             folder.file("missing/metrics.jsonl") +
                                                             "': No such file or directory");
  CHECK(refusal(folder.file("")) == "dtrain: metrics cannot be written to '" + folder.file("") + "': Is a directory");
  CHECK(refusal("") == "dtrain: metrics cannot be written to '': No such file or directory");
}

TEST_CASE("a disk that is full is an error of the line that did not fit, not a silent loss") {
  if (!std::filesystem::exists("/dev/full")) return;
  MetricsFile metrics("/dev/full");
  CHECK_THROWS_WITH_AS(metrics.write(some_report()),
                       "dtrain: metrics cannot be written to '/dev/full': No space left on device", DataError);
}

TEST_CASE("a new run empties the file of an old one") {
  const Folder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsFile(path).write_end(1, 1.0, "old", 1.0);
  MetricsFile(path).write_end(2, 2.0, "new", 2.0);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("strategy") == "new");
}

}  // namespace
