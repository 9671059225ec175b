// Ranks are started, run, and end together: with the first cause where one fails.
#include "dtrain/train/launch.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Six = Strategy<DataParallel<3>, TensorParallel<2>>;

// What a launch printed on standard error, and its exit code.
struct Ended {
  int code = -1;
  std::string text;
};
template <class Launch>
Ended capture(Launch launch) {
  std::FILE* const file = std::tmpfile();
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  Ended ended;
  ended.code = launch();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) ended.text += static_cast<char>(c);
  std::fclose(file);
  return ended;
}

TEST_CASE("every rank runs once, on a thread of its own, and knows its place") {
  std::mutex mutex;
  std::set<int> indices;
  std::set<std::thread::id> threads;
  std::set<std::string> places;
  run_ranks<Six>([&](auto& rank) {
    const std::lock_guard lock(mutex);
    indices.insert(rank.index());
    threads.insert(std::this_thread::get_id());
    places.insert(rank.place());
    CHECK(rank.count() == 6);
    CHECK(rank.is_first() == (rank.index() == 0));
    CHECK(rank.world().size() == 6);
    CHECK(rank.axes().tensor().size() == 2);
    CHECK(rank.axes().template on<parallel::axes::Data>().size() == 3);
  });
  CHECK(indices == std::set<int>{0, 1, 2, 3, 4, 5});
  CHECK(threads.size() == 6);
  CHECK(threads.contains(std::this_thread::get_id()));  // rank 0's
  CHECK(places.size() == 6);
  CHECK(places.contains("data 2 of 3, tensor 1 of 2"));
}

TEST_CASE("threads per rank are those asked for, or the cores shared out evenly") {
  run_ranks<Data2>([](auto& rank) { CHECK(rank.device().threads() == 3); }, {.threads_per_rank = 3});
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  run_ranks<Serial>([&](auto& rank) { CHECK(rank.device().threads() == std::max(1, cores)); });
  run_ranks<Six>([&](auto& rank) { CHECK(rank.device().threads() == std::max(1, cores / 6)); });
}

TEST_CASE("a dynamic degree is what the launch leaves of the ranks") {
  using Dynamic = Strategy<DataParallel<dynamic>, TensorParallel<2>>;
  const auto data_ranks = [](LaunchOptions options) {
    std::atomic<int> degree{0};
    run_ranks<Dynamic>([&](auto& rank) { degree = rank.axes().mesh().batch_share().size; }, options);
    return degree.load();
  };
  CHECK(data_ranks({}) == 1);
  CHECK(data_ranks({.ranks = 2}) == 1);
  CHECK(data_ranks({.ranks = 6}) == 3);
}

TEST_CASE("ranks that do not fill the strategy are refused before anything starts, with the numbers") {
  std::atomic<int> started{0};
  const auto body = [&](auto&) { ++started; };
  CHECK(sentence_of<ConfigurationError>([&] { run_ranks<Six>(body, {.ranks = 4}); }) ==
        "dtrain: strategy DataParallel<3> x TensorParallel<2> needs 6 ranks, but there are 4. Start that many, or "
        "choose another strategy.");
  using Dynamic = Strategy<DataParallel<dynamic>, TensorParallel<2>>;
  CHECK(sentence_of<ConfigurationError>([&] { run_ranks<Dynamic>(body, {.ranks = 5}); }) ==
        "dtrain: strategy DataParallel<dynamic> x TensorParallel<2> needs a multiple of 2 ranks, but there are 5. "
        "Start that many, or choose another strategy.");
  CHECK(sentence_of<ConfigurationError>([&] { run_ranks<Six>(body, {.ranks = -1}); }) ==
        "dtrain: a launch of -1 ranks with 0 threads each was asked for; neither may be below 0.");
  CHECK(sentence_of<ConfigurationError>([&] { run_ranks<Six>(body, {.threads_per_rank = -2}); }) ==
        "dtrain: a launch of 0 ranks with -2 threads each was asked for; neither may be below 0.");
  CHECK(started == 0);
}

TEST_CASE("exit codes: 0 for success, 2 for bad input, 1 for any other failure; one sentence on standard error") {
  const auto run = [](auto body) { return capture([&] { return launch<Data2>(0, nullptr, body); }); };
  const Ended good = run([](auto&) {});
  CHECK(good.code == 0);
  CHECK(good.text.empty());
  const Ended configuration = run([](auto&) { throw ConfigurationError("dtrain: the batch is odd."); });
  CHECK(configuration.code == 2);
  CHECK(configuration.text == "dtrain: the batch is odd.\n");
  const Ended data = run([](auto&) { throw DataError("no such file"); });
  CHECK(data.code == 2);
  CHECK(data.text == "dtrain: no such file\n");
  CHECK(run([](auto&) { throw NumericalError("NaN"); }).code == 1);
  const Ended standard = run([](auto&) { throw std::runtime_error("the disk is full"); });
  CHECK(standard.code == 1);
  CHECK(standard.text == "dtrain: the disk is full\n");
  const Ended other = run([](auto&) { throw 42; });
  CHECK(other.code == 1);
  CHECK(other.text == "dtrain: a rank ended with an exception of an unknown kind\n");
  const Ended refused = capture([] { return launch<Data2>(0, nullptr, [](auto&) {}, {.ranks = 3}); });
  CHECK(refused.code == 2);
  CHECK(refused.text.find("needs 2 ranks, but there are 3") != std::string::npos);
}

TEST_CASE("the first cause is shown, not what followed from it") {
  // What rank 0 throws, freed from its wait, comes before rank 4's in the order of ranks.
  for (int repeat = 0; repeat < 20; ++repeat) {
    const std::string sentence = sentence_of<DataError>([&] {
      run_ranks<Six>([&](auto& rank) {
        if (rank.index() == 4) throw DataError("rank 4 found a bad sample");
        std::array<int, 1> number{1};
        rank.world().all_reduce(std::span(number)).wait();
      });
    });
    REQUIRE(sentence == "rank 4 found a bad sample");
  }
}

TEST_CASE("a failure while a collective is on its way is the cause, too") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const std::string sentence = sentence_of<std::runtime_error>([&] {
      run_ranks<Data2>([&](auto& rank) {
        std::array<int, 1> number{1};
        auto handle = rank.world().all_reduce(std::span(number));
        if (rank.index() == 1) throw std::runtime_error("rank 1 stumbled");
        handle.wait();
        // Whoever came through waits for the rank that never comes.
        rank.world().barrier().wait();
      });
    });
    REQUIRE(sentence == "rank 1 stumbled");
  }
}

TEST_CASE("a rank that leaves early does not hang the others") {
  // fault F11
  const auto begin = Clock::now();
  const std::string sentence = sentence_of<TimeoutError>([&] {
    run_ranks<Data2>(
        [&](auto& rank) {
          for (int batch = 0; batch < (rank.index() == 0 ? 3 : 2); ++batch) {
            std::array<float, 1> gradient{1.0f};
            rank.world().all_reduce(std::span(gradient)).wait();
          }
        },
        {.deadline = 200ms});
  });
  INFO(sentence);
  CHECK(sentence.find("all_reduce") != std::string::npos);
  CHECK(sentence.find("rank 1") != std::string::npos);
  CHECK(Clock::now() - begin < 5s);
}

// A rank that throws while it feeds step 2; the others wait in the collectives of their own steps.
template <class S>
void check_freed(int thrower) {
  CAPTURE(S::describe());
  CAPTURE(thrower);
  std::atomic<Clock::rep> thrown_at{0};
  const std::string sentence = sentence_of<std::domain_error>([&] {
    run_ranks<S>(
        [&](auto& rank) {
          train::Trainer<TinyMlp, S> trainer(rank);
          const auto shape = trainer.batch_shape(4, 1, 2);
          int step = 0;
          const auto feed = [&](Range, std::span<float> inputs, std::span<std::int32_t> targets) {
            std::fill(inputs.begin(), inputs.end(), 0.5f);
            std::fill(targets.begin(), targets.end(), 1);
            if (rank.index() != thrower || step < 1) return;
            std::this_thread::sleep_for(50ms);  // by now the others wait
            thrown_at = Clock::now().time_since_epoch().count();
            throw std::domain_error("step 2 cannot be fed");
          };
          for (; step < 3; ++step) trainer.step(shape, feed);
        },
        {.threads_per_rank = 1});
  });
  CHECK(sentence == "step 2 cannot be fed");
  CHECK(Clock::now().time_since_epoch() - Clock::duration(thrown_at) < 1s);
}

TEST_CASE("a rank that throws mid-step frees ranks that wait along the data, tensor and pipeline axes") {
  for (int rank = 0; rank < 2; ++rank) {
    check_freed<Data2>(rank);
    check_freed<Tensor2>(rank);
    check_freed<Pipeline2>(rank);
  }
  for (int rank = 0; rank < 8; ++rank) check_freed<ThreeAxes>(rank);
}

}  // namespace
