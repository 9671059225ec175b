// Where the ranks of one group of threads meet: the lock, the bells that wake waiters, and the failure that frees them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtrain/comm/call_description.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::comm::detail {

/// Says to the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Why a group stopped. `none` while it works.
enum class Failure : std::uint8_t { none, misuse, timeout, aborted };

/// The shared state of a group that is not about one operation. All functions but the constructor and `mutex()` are
/// called with the lock held; data are moved without it, between `begin_work` and `end_work`.
class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  /// When a wait gives up; the clock is not read before the wait really sleeps.
  class Deadline {
   public:
    explicit Deadline(std::chrono::milliseconds length) : length_(length) {}
    Clock::time_point point() {
      if (end_ == Clock::time_point{}) end_ = Clock::now() + length_;
      return end_;
    }
    [[nodiscard]] bool passed() const { return end_ != Clock::time_point{} && Clock::now() >= end_; }

   private:
    std::chrono::milliseconds length_;
    Clock::time_point end_{};
  };

  Rendezvous(std::string name, std::vector<int> world_ranks, std::chrono::milliseconds deadline, int spins)
      : name_(std::move(name)),
        world_ranks_(std::move(world_ranks)),
        deadline_(deadline),
        spins_(spins),
        bells_(std::make_unique<Bell[]>(world_ranks_.size())) {}

  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  [[nodiscard]] int size() const { return static_cast<int>(world_ranks_.size()); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_ranks_; }
  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }

  /// `rank 1`, or `rank 1 (world rank 5)` where the two differ.
  [[nodiscard]] std::string rank_name(int rank) const {
    const int world_rank = world_ranks_[static_cast<std::size_t>(rank)];
    return world_rank == rank ? concatenate("rank ", rank)
                              : concatenate("rank ", rank, " (world rank ", world_rank, ")");
  }

  /// Wakes one rank. It will look again at what it waits for.
  void ring(int rank) {
    Bell& bell = bells_[static_cast<std::size_t>(rank)];
    bell.rings.fetch_add(1, std::memory_order_release);
    if (bell.asleep) bell.wake.notify_one();
  }
  void ring_all() {
    for (int rank = 0; rank < size(); ++rank) ring(rank);
  }

  /// Lets go of the lock until somebody rings for `rank` or the deadline passes; spins first where a core is free.
  /// True, and then without the lock, as soon as `done()`, which must be readable without it.
  template <class Done>
  bool pause(Lock& lock, int rank, Deadline& deadline, Done done) {
    Bell& bell = bells_[static_cast<std::size_t>(rank)];
    const auto seen = bell.rings.load(std::memory_order_relaxed);
    const auto rung = [&] { return bell.rings.load(std::memory_order_acquire) != seen; };
    if (spins_ > 0) {
      lock.unlock();
      // `done` is asked first: its writer rings while it holds the lock, and whoever takes the lock then would sleep.
      for (int spin = 0; spin < spins_; ++spin) {
        if (done()) return true;
        if (rung()) break;
        relax();
      }
      lock.lock();
      if (rung()) return false;
    }
    bell.asleep = true;
    bell.wake.wait_until(lock, deadline.point(), rung);
    bell.asleep = false;
    return false;
  }

  /// Marks that this thread reads or writes buffers of other ranks; no failure is thrown while anybody does.
  void begin_work() { ++working_; }
  void end_work() {
    --working_;
    if (failed()) ring_all();
  }

  [[nodiscard]] bool failed() const { return failure_ != Failure::none; }
  /// Stops the group for good and wakes everybody. The first cause is kept.
  void fail(Failure failure, std::string cause) {
    if (failed()) return;
    failure_ = failure;
    cause_ = std::move(cause);
    ring_all();
  }
  /// Waits until nobody touches a buffer of this group any more. Work in progress is finite, so this ends.
  void wait_for_workers(Lock& lock, int rank) {
    Deadline unlimited(std::chrono::hours(24 * 365));
    while (working_ > 0) pause(lock, rank, unlimited, [] { return false; });
  }
  /// Throws the group's failure at a rank that was `doing` something.
  [[noreturn]] void throw_failure(Lock& lock, int rank, const std::string& doing, const std::source_location& where) {
    wait_for_workers(lock, rank);
    switch (failure_) {
      case Failure::timeout:
        throw TimeoutError(cause_, where);
      case Failure::aborted:
        throw AbortedError(
            concatenate(rank_name(rank), " was freed from ", doing, " on communicator '", name_, "': ", cause_), where);
      default:
        throw CommunicationError(cause_, where);
    }
  }

 private:
  struct alignas(64) Bell {
    std::atomic<std::uint64_t> rings{0};
    std::condition_variable wake;
    bool asleep = false;
  };

  std::string name_;
  std::vector<int> world_ranks_;
  std::chrono::milliseconds deadline_;
  int spins_;
  std::mutex mutex_;
  std::unique_ptr<Bell[]> bells_;
  int working_ = 0;
  Failure failure_ = Failure::none;
  std::string cause_;
};

}  // namespace dtrain::comm::detail
