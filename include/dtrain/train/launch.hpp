// Starts the ranks of a strategy, runs a function on each, and ends with the first cause where one fails.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/train/rank.hpp"

namespace dtrain::train {

/// How ranks are started.
struct LaunchOptions {
  /// How many; 0: what the strategy's static degrees make, with a dynamic one at 1.
  int ranks = 0;
  /// Threads that each rank computes with; 0: the processor's cores shared out evenly, at least 1 each.
  int threads_per_rank = 0;
  /// How long a rank waits for others before the run ends with an error.
  std::chrono::milliseconds deadline{300'000};
};

/// Exit codes of `launch`.
enum class ExitCode : int { success = 0, failure = 1, bad_input = 2 };

namespace detail {

// The first failure that is a cause and not a consequence, over all ranks.
class FirstFailure {
 public:
  void record(int rank, std::exception_ptr error, bool consequence) {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr && (consequence || !consequence_)) return;
    error_ = std::move(error);
    rank_ = rank;
    consequence_ = consequence;
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::exception_ptr error() const { return error_; }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int rank_ = -1;
  bool consequence_ = false;
};

// A rank's work, of whichever type, so that what starts threads is compiled once for all strategies.
struct RankWork {
  void (*run)(void* context, int rank);
  void* context;
  void operator()(int rank) const { run(context, rank); }
};

[[gnu::cold]] inline void run_rank(int index, comm::ThreadsWorld& world, FirstFailure& failure, const RankWork& work) {
  try {
    work(index);
  } catch (const AbortedError&) {
    failure.record(index, std::current_exception(), true);
  } catch (const std::exception& error) {
    // Recorded before the others are freed: what they then throw is a consequence.
    failure.record(index, std::current_exception(), false);
    world.fail(index, error.what());
  } catch (...) {
    failure.record(index, std::current_exception(), false);
    world.fail(index, "an exception of an unknown kind");
  }
}

// Rank 0 runs on the calling thread.
[[gnu::cold]] inline void run_ranks(int ranks, comm::ThreadsWorld& world, const RankWork& work) {
  FirstFailure failure;
  {
    std::vector<std::jthread> threads;
    try {
      for (int r = 1; r < ranks; ++r) threads.emplace_back([&, r] { run_rank(r, world, failure, work); });
    } catch (const std::system_error& error) {
      // The ranks that did start wait for those that never will.
      const int rank = static_cast<int>(threads.size()) + 1;
      const std::string sentence =
          concatenate("dtrain: rank ", rank, " of ", ranks, " could not be started as a thread: ", error.what(), ".");
      failure.record(rank, std::make_exception_ptr(Error(sentence)), false);
      world.fail(rank, sentence);
    }
    run_rank(0, world, failure, work);
  }
  if (failure.error() != nullptr) std::rethrow_exception(failure.error());
}

inline LaunchOptions completed(LaunchOptions options, int static_ranks) {
  if (options.ranks < 0 || options.threads_per_rank < 0)
    throw ConfigurationError(concatenate("dtrain: a launch of ", options.ranks, " ranks with ",
                                         options.threads_per_rank,
                                         " threads each was asked for; neither may be below 0."));
  if (options.ranks == 0) options.ranks = static_ranks;
  if (options.threads_per_rank == 0) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    options.threads_per_rank = std::max(1, cores / options.ranks);
  }
  return options;
}

}  // namespace detail

/// Runs `body(rank)` on every rank of strategy `S`, each a thread of this process, and returns when all have ended.
/// When one throws, all others are freed from their waits, and the first cause is thrown here.
/// Throws ConfigurationError, before anything starts, when the ranks asked for do not fill the strategy.
template <class S, class Device = Host, class Body>
void run_ranks(Body&& body, LaunchOptions options = {}) {
  options = detail::completed(options, S::static_ranks);
  parallel::Mesh<S>::check_world(options.ranks);
  comm::ThreadsWorld world(options.ranks, {.deadline = options.deadline});
  auto on_rank = [&](int index) {
    auto communicator = world.communicator(index);
    Device device({.threads = options.threads_per_rank});
    Rank<S, Device> rank(device, communicator);
    body(rank);
  };
  using OnRank = decltype(on_rank);
  detail::run_ranks(options.ranks, world,
                    {[](void* context, int index) { (*static_cast<OnRank*>(context))(index); }, &on_rank});
}

namespace detail {

inline int last_word(const char* sentence, ExitCode code) {
  const std::string text = sentence;
  std::fprintf(stderr, "%s%s\n", text.starts_with("dtrain:") ? "" : "dtrain: ", sentence);
  return static_cast<int>(code);
}

}  // namespace detail

/// `run_ranks` for a program's `main`: returns its exit code, having printed the first cause where there is one. Bad
/// input (ConfigurationError, DataError) gives 2, any other failure 1. `argc` and `argv` are handed through untouched:
/// launchers of other kinds of ranks need them.
template <class S, class Device = Host, class Body>
[[nodiscard]] int launch([[maybe_unused]] int argc, [[maybe_unused]] char** argv, Body&& body,
                         LaunchOptions options = {}) {
  try {
    run_ranks<S, Device>(body, options);
    return static_cast<int>(ExitCode::success);
  } catch (const ConfigurationError& error) {
    return detail::last_word(error.what(), ExitCode::bad_input);
  } catch (const DataError& error) {
    return detail::last_word(error.what(), ExitCode::bad_input);
  } catch (const std::exception& error) {
    return detail::last_word(error.what(), ExitCode::failure);
  } catch (...) {
    return detail::last_word("a rank ended with an exception of an unknown kind", ExitCode::failure);
  }
}

}  // namespace dtrain::train

namespace dtrain {
using train::launch;
using train::LaunchOptions;
using train::run_ranks;
}  // namespace dtrain
