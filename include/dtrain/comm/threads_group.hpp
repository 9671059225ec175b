// One group of threads that communicate, and the world that all groups of a run belong to.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtrain/comm/threads_collectives.hpp"
#include "dtrain/comm/threads_messages.hpp"
#include "dtrain/comm/threads_rendezvous.hpp"
#include "dtrain/comm/traffic.hpp"

namespace dtrain::comm::detail {

class ThreadsRegistry;

/// The shared part of a communicator: its ranks, their collectives and their messages.
struct ThreadsGroup {
  ThreadsGroup(ThreadsRegistry& owner, std::string name, std::vector<int> world_ranks,
               std::chrono::milliseconds deadline, int spins)
      : registry(owner),
        meeting(std::move(name), std::move(world_ranks), deadline, spins),
        collectives(meeting),
        messages(meeting),
        traffic(static_cast<std::size_t>(meeting.size())) {}

  /// Each rank writes its own.
  struct alignas(64) RankTraffic {
    Traffic value;
  };

  ThreadsRegistry& registry;
  Rendezvous meeting;
  CollectiveQueue collectives;
  MessageBoard messages;
  std::vector<RankTraffic> traffic;
};

/// Owns the groups of a world, so that one failure reaches the waiters of all of them.
class ThreadsRegistry {
 public:
  ThreadsRegistry(int size, std::chrono::milliseconds deadline)
      : deadline_(deadline), spins_(size <= static_cast<int>(std::thread::hardware_concurrency()) ? 1000 : 0) {}

  ThreadsGroup& add(std::string name, std::vector<int> world_ranks) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(
        std::make_unique<ThreadsGroup>(*this, std::move(name), std::move(world_ranks), deadline_, spins_));
    if (cause_) fail_group(*groups_.back());
    return *groups_.back();
  }

  /// Fails every group, now and later; the first cause is kept.
  void fail(std::string cause) {
    const std::lock_guard lock(mutex_);
    if (cause_) return;
    cause_ = std::move(cause);
    for (const auto& group : groups_) fail_group(*group);
  }

  [[nodiscard]] std::optional<std::string> cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  void fail_group(ThreadsGroup& group) {
    const Rendezvous::Lock lock(group.meeting.mutex());
    group.meeting.fail(Failure::aborted, *cause_);
  }

  std::chrono::milliseconds deadline_;
  int spins_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadsGroup>> groups_;
  std::optional<std::string> cause_;
};

}  // namespace dtrain::comm::detail
