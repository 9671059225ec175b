// The main job as a user runs it: good runs leave whole metrics, bad input ends in one sentence and touches nothing.
// The program under test is named by the environment, DTRAIN_TRAIN.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// A folder of its own for each test, with a text of some 10 kB; gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "dtrain_cli_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    std::string text;
    for (int i = 0; text.size() < 10'000; ++i)
      text += "Line " + std::to_string(i) + " of a text that is easy to learn.\n";
    write(path_ / "text.txt", text);
  }
  ~Folder() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

struct Ended {
  int code = -1;    ///< exit code; -1 where a signal ended it
  int signal = 0;   ///< the signal, where one did
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

// The program in a process of its own, in `folder`.
class Process {
 public:
  Process(const Folder& folder, std::vector<std::string> arguments)
      : out_(folder.path() / ".out"), err_(folder.path() / ".err") {
    const char* const program = std::getenv("DTRAIN_TRAIN");
    REQUIRE_MESSAGE(program != nullptr, "DTRAIN_TRAIN must name the program under test");
    arguments.insert(arguments.begin(), program);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ > 0) return;
    const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    if (::chdir(folder.path().c_str()) == 0) ::execv(program, pointers.data());
    ::_exit(127);
  }
  void interrupt() const { ::kill(child_, SIGINT); }
  [[nodiscard]] std::string output() const { return read(out_); }

  // Fails the test, and kills the program, where it runs longer than `limit`.
  Ended wait(Clock::duration limit = 120s) {
    const auto end = Clock::now() + limit;
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      if (Clock::now() > end) {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, &status, 0);
        FAIL("the program hung; it had printed: ", read(out_), read(err_));
      }
      std::this_thread::sleep_for(2ms);
    }
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            .out = read(out_),
            .err = read(err_)};
  }

 private:
  fs::path out_;
  fs::path err_;
  ::pid_t child_ = -1;
};

Ended run(const Folder& folder, std::vector<std::string> arguments) {
  return Process(folder, std::move(arguments)).wait();
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<json> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// Those that the program itself names when it is asked for one that does not exist.
std::vector<std::string> known_strategies() {
  const Folder folder;
  const std::string sentence = run(folder, {"explain", "nonsense"}).err;
  const std::string before = "It knows: ";
  const auto begin = sentence.find(before);
  REQUIRE_MESSAGE(begin != std::string::npos, sentence);
  std::string names = sentence.substr(begin + before.size());
  names.erase(names.find_last_of('.'));
  std::replace(names.begin(), names.end(), ',', ' ');
  return words(names);
}

// One sentence on standard error, nothing on standard output, exit code 2, and no file made or changed.
void check_refused(const Folder& folder, const std::vector<std::string>& arguments,
                   std::initializer_list<std::string_view> parts) {
  std::string command;
  for (const std::string& argument : arguments) command += " " + argument;
  CAPTURE(command);
  const std::string kept = "{\"kept\": true}\n";
  write(folder.at("kept.jsonl"), kept);
  std::vector<fs::path> before;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) before.push_back(entry.path());
  const Ended ended = run(folder, arguments);
  CHECK(ended.code == 2);
  CHECK(ended.out == "");
  CAPTURE(ended.err);
  CHECK(ended.err.starts_with("dtrain: "));
  CHECK(ended.err.find("dtrain: ", 1) == std::string::npos);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK(ended.err.ends_with("\n"));
  for (const std::string_view part : parts) CHECK(ended.err.find(part) != std::string::npos);
  CHECK(read(folder.at("kept.jsonl")) == kept);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (!entry.path().filename().string().starts_with('.'))
      CHECK_MESSAGE(std::count(before.begin(), before.end(), entry.path()) == 1, "left behind: ", entry.path());
}

// The same with a good text and a metrics file that is there already: it must survive.
void check_option_refused(const Folder& folder, const std::string& options,
                          std::initializer_list<std::string_view> parts) {
  std::vector<std::string> arguments{"train", "--data", "text.txt", "--metrics", "kept.jsonl"};
  for (std::string& word : words(options)) arguments.push_back(std::move(word));
  check_refused(folder, arguments, parts);
}

TEST_CASE("a short run under every compiled strategy: plan, losses, a sample, whole metrics") {
  const std::vector<std::string> strategies = known_strategies();
  CHECK(std::count(strategies.begin(), strategies.end(), "serial") == 1);
  CHECK(std::count(strategies.begin(), strategies.end(), "dp2-pp2-tp2") == 1);
  double first_loss = 0.0;
  for (const std::string& strategy : strategies) {
    CAPTURE(strategy);
    const Folder folder;
    const Ended ended =
        run(folder, {"train", "--data", "text.txt", "--strategy", strategy, "--steps", "3", "--metrics", "m.jsonl"});
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    CHECK(ended.err == "");
    for (const char* part : {"memory", "validation loss before training: ", "step 3/3", "tokens/s",
                             "validation loss after 3 steps: ", "a sample", "m.jsonl"})
      CHECK_MESSAGE(ended.out.find(part) != std::string::npos, "no '", part, "' in ", ended.out);
    const auto lines = lines_of(folder.at("m.jsonl"));
    REQUIRE(lines.size() == 4);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(lines[i].at("step") == i + 1);
      for (const char* key : {"loss", "grad_norm", "tokens_per_second", "seconds"})
        CHECK(lines[i].at(key).get<double>() > 0.0);
      CHECK(lines[i].at("learning_rate").get<double>() == doctest::Approx(1e-3 * static_cast<double>(i) / 100));
    }
    CHECK(lines[3].at("event") == "end");
    CHECK(lines[3].at("steps") == 3);
    CHECK(lines[3].at("strategy") == strategy);
    CHECK(lines[3].at("validation_loss").get<double>() == doctest::Approx(std::log(256.0)).epsilon(0.1));
    // The same model on the same batch, whatever the strategy.
    const double loss = lines[0].at("loss").get<double>();
    if (first_loss == 0.0) first_loss = loss;
    CHECK(loss == doctest::Approx(first_loss).epsilon(1e-5));
  }
}

TEST_CASE("every strategy can be explained, and explaining writes nothing") {
  const Folder folder;
  for (const std::string& strategy : known_strategies()) {
    CAPTURE(strategy);
    const Ended ended = run(folder, {"explain", strategy});
    CHECK(ended.code == 0);
    CHECK(ended.err == "");
    for (const char* part : {"stage", "memory", "communication", "schedule"})
      CHECK_MESSAGE(ended.out.find(part) != std::string::npos, "no '", part, "' in ", ended.out);
    CHECK(run(folder, {"explain", "--strategy", strategy}).out == ended.out);
  }
  CHECK_FALSE(fs::exists(folder.at("metrics.jsonl")));
  CHECK(run(folder, {"explain"}).out == run(folder, {"explain", "dp2-pp2-tp2"}).out);
}

TEST_CASE(
    "an explanation as JSON has the bytes of every rank, as predicted and as allocated; its schedule is a picture") {
  const Folder folder;
  const std::map<std::string, std::size_t> ranks{{"dp2-zero3", 2}, {"pp2-zb-v", 2}, {"dp2-pp2-tp2", 8}};
  for (const auto& [strategy, count] : ranks) {
    CAPTURE(strategy);
    const Ended ended = run(folder, {"explain", strategy, "--json", "e.json", "--picture", "e.svg"});
    CHECK(ended.code == 0);
    CHECK(ended.err == "");
    CHECK(ended.out == run(folder, {"explain", strategy}).out);
    const json program = json::parse(read(folder.at("e.json")));
    REQUIRE(program.at("memory").size() == count);
    for (const json& rank : program.at("memory")) {
      CHECK(rank.at("allocated") == rank.at("predicted"));
      long long total = 0;
      for (const auto& [kind, bytes] : rank.at("allocated").items())
        if (kind != "total") total += bytes.get<long long>();
      CHECK(rank.at("allocated").at("total") == total);
      for (const char* kind : {"parameters", "gradients", "optimizer", "activations", "transient"})
        CHECK(rank.at("allocated").at(kind).get<long long>() > 0);
      CHECK((rank.at("predicted").at("gathered").get<long long>() > 0) == (strategy == "dp2-zero3"));
    }
    for (const json& stage : program.at("schedule").at("stages")) CHECK(!stage.at("rows").empty());
    CHECK(program.at("stages").size() == program.at("schedule").at("stages").size());
    CHECK(read(folder.at("e.svg")).starts_with("<svg "));
  }
  const Ended refused = run(folder, {"explain", "dp2", "--json", "missing/e.json"});
  CHECK(refused.code == 2);
  CHECK(refused.err == "dtrain: --json cannot be written to 'missing/e.json'; name another file.\n");
}

TEST_CASE("the same seed gives the same run, another seed another") {
  const Folder folder;
  const auto losses = [&](const std::string& seed) {
    const Ended ended = run(folder, {"train", "--data", "text.txt", "--strategy", "dp2", "--steps", "3", "--metrics",
                                     "m.jsonl", "--seed", seed});
    REQUIRE(ended.code == 0);
    std::vector<double> numbers;
    for (const json& line : lines_of(folder.at("m.jsonl")))
      numbers.push_back(line.contains("loss") ? line.at("loss").get<double>()
                                              : line.at("validation_loss").get<double>());
    return numbers;
  };
  const auto first = losses("7");
  CHECK(losses("7") == first);
  CHECK(losses("8") != first);
}

TEST_CASE("a text that is missing, empty, unreadable or too short is refused") {
  const Folder folder;
  check_refused(folder, {"train"}, {"--data"});
  check_refused(folder, {"train", "--data", "missing.txt"}, {"'missing.txt'", "does not exist"});
  check_refused(folder, {"train", "--data", "text.txt", "missing.txt"}, {"'missing.txt'", "does not exist"});
  write(folder.at("empty.txt"), "");
  check_refused(folder, {"train", "--data", "empty.txt"}, {"'empty.txt'", "0 bytes"});
  fs::create_directory(folder.at("nothing"));
  check_refused(folder, {"train", "--data", "nothing"}, {"'nothing'", "0 files"});
  write(folder.at("short.txt"), std::string(100, 'x'));
  check_refused(folder, {"train", "--data", "short.txt"}, {"too short", "10 of 100 bytes", "65"});
  check_refused(folder, {"train", "--data", "/dev/null"}, {"'/dev/null'", "neither a file nor a directory"});
  check_refused(folder, {"train", "--data", ""}, {"''"});
  if (::geteuid() != 0) {
    write(folder.at("secret.txt"), std::string(10'000, 'x'));
    fs::permissions(folder.at("secret.txt"), fs::perms::none);
    check_refused(folder, {"train", "--data", "secret.txt"}, {"'secret.txt'", "Permission denied"});
  } else {
    // Nothing is unreadable to root but what cannot be read at all.
    check_refused(folder, {"train", "--data", "/proc/self/mem"}, {"'/proc/self/mem'", "nput/output error"});
  }
  CHECK_FALSE(fs::exists(folder.at("metrics.jsonl")));
}

TEST_CASE("a batch that does not divide is refused with the numbers") {
  const Folder folder;
  check_option_refused(folder, "--batch 7 --strategy dp2", {"7 samples", "2 data-parallel ranks", "multiple of 2"});
  check_option_refused(folder, "--batch 12 --micro-batches 5 --strategy pp2", {"12 samples", "5", "multiple of 5"});
  check_option_refused(folder, "--batch 12 --micro-batches 4", {"12 samples", "2 data-parallel", "multiple of 8"});
  check_refused(folder, {"explain", "dp2", "--batch", "7"}, {"7 samples", "multiple of 2"});
}

TEST_CASE("numbers that are zero, negative, none at all, or too large are refused, naming the option") {
  const Folder folder;
  for (const std::string option : {"--steps", "--batch", "--micro-batches", "--learning-rate"})
    for (const std::string value :
         {"0", "-1", "-9223372036854775808", "many", "", "12abc", "99999999999999999999999", "0x", "nan", "-inf"}) {
      if (option == "--learning-rate" && value.starts_with("999")) continue;  // a number like any other: see below
      check_refused(folder, {"train", "--data", "text.txt", "--metrics", "kept.jsonl", option + "=" + value}, {option});
    }
  for (const std::string value : {"inf", "1e999", "99999999999999999999999999999999"})
    check_refused(folder, {"train", "--data", "text.txt", "--metrics", "kept.jsonl", "--learning-rate", value},
                  {"--learning-rate"});
  check_option_refused(folder, "--steps 2.5", {"--steps"});
  check_option_refused(folder, "--steps -5", {"--steps"});
  check_option_refused(folder, "--seed -1", {"--seed"});
  check_option_refused(folder, "--seed x", {"--seed"});
  check_option_refused(folder, "--batch 9223372036854775807", {"--batch"});
  // It fits into 64 bits and would be 1 in 32.
  check_option_refused(folder, "--micro-batches 4294967297", {"--micro-batches"});
  check_option_refused(folder, "--micro-batches 13 --batch 12", {"--micro-batches", "12"});
}

TEST_CASE("a batch that no memory here could hold is refused before anything is allocated") {
  const Folder folder;
  check_option_refused(folder, "--batch 1000000 --strategy serial", {"1000000 sequences", "serial", "GiB"});
}

TEST_CASE("unknown names are refused; of strategies, those that there are are listed") {
  const Folder folder;
  check_option_refused(folder, "--strategy nonsense", {"'nonsense'", "serial", "dp2", "tp2", "pp2", "dp2-pp2-tp2"});
  check_refused(folder, {"explain", "nonsense"}, {"'nonsense'", "serial", "dp2-pp2-tp2"});
  check_option_refused(folder, "--frobnicate 3", {"--frobnicate"});
  check_option_refused(folder, "--steps 3 stray", {"stray"});
  check_refused(folder, {"explain", "serial", "dp2"}, {"dp2"});
  check_refused(folder, {}, {"--help"});
  check_refused(folder, {"tarin"}, {"--help"});
  check_option_refused(folder, "--steps", {"--steps"});
  check_option_refused(folder, "--steps 3 --steps 4", {"--steps"});
}

TEST_CASE("metrics that cannot be written are refused before training") {
  const Folder folder;
  const auto refused = [&](const std::string& path, std::initializer_list<std::string_view> parts) {
    check_refused(folder, {"train", "--data", "text.txt", "--steps", "3", "--metrics", path}, parts);
  };
  fs::create_directory(folder.at("folder"));
  refused("folder", {"'folder'", "Is a directory"});
  refused("missing/m.jsonl", {"'missing/m.jsonl'", "No such file"});
  refused("", {"''"});
  if (::geteuid() != 0) {
    fs::permissions(folder.at("folder"), fs::perms::owner_read | fs::perms::owner_exec);
    refused("folder/m.jsonl", {"Permission denied"});
    fs::permissions(folder.at("folder"), fs::perms::owner_all);
  }
}

TEST_CASE("metrics never overwrite the text, by whatever name") {
  const Folder folder;
  const std::string text = read(folder.at("text.txt"));
  for (const std::string name : {"text.txt", "./text.txt", "link.txt"}) {
    if (name == "link.txt") fs::create_symlink("text.txt", folder.at(name));
    check_refused(folder, {"train", "--data", "text.txt", "--metrics", name}, {"would overwrite", name});
    CHECK(read(folder.at("text.txt")) == text);
  }
  fs::create_directory(folder.at("texts"));
  write(folder.at("texts/a.txt"), text);
  check_refused(folder, {"train", "--data", "texts", "--metrics", "texts/a.txt"}, {"would overwrite"});
  CHECK(read(folder.at("texts/a.txt")) == text);
}

TEST_CASE("a disk that fills up ends the run with a sentence") {
  if (!fs::exists("/dev/full")) return;
  const Folder folder;
  const Ended ended = run(folder, {"train", "--data", "text.txt", "--strategy", "dp2", "--metrics", "/dev/full"});
  CHECK(ended.code != 0);
  CHECK(ended.err == "dtrain: metrics cannot be written to '/dev/full': No space left on device\n");
}

TEST_CASE("a loss that is no number ends the run on all ranks, and names step and rank") {
  const Folder folder;
  const Ended ended = run(
      folder, {"train", "--data", "text.txt", "--strategy", "dp2", "--metrics", "m.jsonl", "--learning-rate", "1e29"});
  CHECK(ended.code == 1);
  CAPTURE(ended.err);
  CHECK(ended.err.starts_with("dtrain: the loss of step "));
  CHECK(ended.err.find("rank ") != std::string::npos);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  // What was written is whole, and says nothing of an end.
  for (const json& line : lines_of(folder.at("m.jsonl"))) CHECK(line.contains("step"));
}

TEST_CASE("an interrupt in the middle ends the run at once, with whole lines of metrics") {
  const Folder folder;
  Process process(folder, {"train", "--data", "text.txt", "--metrics", "m.jsonl", "--steps", "1000000"});
  const auto end = Clock::now() + 120s;
  while (read(folder.at("m.jsonl")).find('\n') == std::string::npos && Clock::now() < end)
    std::this_thread::sleep_for(5ms);
  process.interrupt();
  const auto sent = Clock::now();
  const Ended ended = process.wait(10s);
  CHECK(Clock::now() - sent < 3s);
  CHECK((ended.signal == SIGINT || ended.code != 0));
  const auto lines = lines_of(folder.at("m.jsonl"));
  CHECK(lines.size() >= 1);
  CHECK(lines[0].at("step") == 1);
}

TEST_CASE("help names every option and the strategies") {
  const Folder folder;
  const Ended ended = run(folder, {"train", "--help"});
  CHECK(ended.code == 0);
  for (const char* part : {"--data", "--metrics", "--strategy", "--steps", "--seed", "--batch", "--micro-batches",
                           "--learning-rate", "dp2-pp2-tp2", "2000"})
    CHECK(ended.out.find(part) != std::string::npos);
}

}  // namespace
