// The threads of one rank: they run numbered parts of a job and sleep in between.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain {

/// Runs `f(part)` for part = 0 .. parts-1, part p always on thread p (thread 0 is the caller), and returns when all
/// have ended. One caller at a time; a run allocates nothing. An exception of a part is rethrown to the caller, that
/// of the lowest part if there are several.
class ThreadPool {
 public:
  explicit ThreadPool(Index threads) : threads_(threads) {
    if (threads < 1 || threads > 4096)
      throw ConfigurationError(concatenate("ThreadPool: ", threads, " threads were asked for; use 1 to 4096."));
    in_process().fetch_add(threads_, std::memory_order_relaxed);
    failures_ = std::make_unique<std::exception_ptr[]>(static_cast<std::size_t>(threads_));
    workers_.reserve(static_cast<std::size_t>(threads_ - 1));
    try {
      for (Index thread = 1; thread < threads_; ++thread) workers_.emplace_back([this, thread] { serve(thread); });
    } catch (const std::exception& cause) {
      stop();
      throw ConfigurationError(concatenate("ThreadPool: the system refused thread ", workers_.size() + 1, " of ",
                                           threads_, " (", cause.what(), "); use fewer threads per rank."));
    }
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop(); }

  [[nodiscard]] Index threads() const { return threads_; }

  template <class F>
  void run(Index parts, F&& f) {
    // All that waits is compiled once, and `f` in one place, whether one part or many call it.
    using Callable = std::remove_reference_t<F>;
    run_job({parts, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
             [](void* callable, Index part) { (*static_cast<Callable*>(callable))(part); }});
  }

 private:
  struct Job {
    Index parts = 0;
    void* callable = nullptr;
    void (*call)(void*, Index) = nullptr;
  };

  [[gnu::noinline]] void run_job(const Job& job) {
    if (job.parts <= 1) {
      if (job.parts == 1) job.call(job.callable, 0);
      return;
    }
    if (running_) throw Error("ThreadPool: a part of a running job started another job on the same pool.");
    running_ = true;
    job_ = job;
    pending_.store(static_cast<std::uint32_t>(threads_ - 1), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    perform(0);
    await_change(pending_, [](std::uint32_t left) { return left == 0; });
    running_ = false;
    if (failed_.exchange(false, std::memory_order_relaxed)) rethrow_first();
  }

  /// Threads of all pools of this process: when they outnumber the cores, spinning steals time from real work.
  static std::atomic<Index>& in_process() {
    static std::atomic<Index> count{0};
    return count;
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  /// Waits until `done(value)`: a few microseconds by spinning if there is a core to spare, then asleep.
  template <class Done>
  static void await_change(std::atomic<std::uint32_t>& value, Done done) {
    static const Index cores = static_cast<Index>(std::thread::hardware_concurrency());
    const int spins = in_process().load(std::memory_order_relaxed) <= cores ? 500 : 0;
    for (int spin = 0; spin < spins; ++spin) {
      if (done(value.load(std::memory_order_acquire))) return;
      pause();
    }
    for (std::uint32_t seen = value.load(std::memory_order_acquire); !done(seen);
         seen = value.load(std::memory_order_acquire))
      value.wait(seen, std::memory_order_acquire);
  }

  void perform(Index thread) {
    if (thread >= job_.parts) return;
    try {
      job_.call(job_.callable, thread);
    } catch (...) {
      failures_[static_cast<std::size_t>(thread)] = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  void serve(Index thread) {
    for (std::uint32_t seen = 0;;) {
      await_change(generation_, [seen](std::uint32_t now) { return now != seen; });
      // Jobs do not overlap: the next generation starts only after this thread has reported the present one.
      ++seen;
      if (stopping_.load(std::memory_order_acquire)) return;
      perform(thread);
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    }
  }

  void rethrow_first() {
    std::exception_ptr first;
    for (Index thread = threads_ - 1; thread >= 0; --thread) {
      auto& failure = failures_[static_cast<std::size_t>(thread)];
      if (failure) first = failure;
      failure = nullptr;
    }
    std::rethrow_exception(first);
  }

  void stop() noexcept {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    in_process().fetch_sub(threads_, std::memory_order_relaxed);
  }

  Index threads_;
  Job job_;
  bool running_ = false;
  // Lines of their own: waiters poll these while parts run.
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::unique_ptr<std::exception_ptr[]> failures_;
  std::vector<std::thread> workers_;
};

}  // namespace dtrain
