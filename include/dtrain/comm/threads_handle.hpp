// The handle of an operation between threads.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/comm/threads_group.hpp"

namespace dtrain::comm {

/// A posted operation of a rank. Must not outlive the world.
class [[nodiscard]] ThreadsHandle {
 public:
  ThreadsHandle() = default;
  ThreadsHandle(detail::ThreadsGroup& group, int rank, std::uint64_t sequence)
      : group_(&group), rank_(rank), sequence_(sequence) {}
  ThreadsHandle(detail::ThreadsGroup& group, int rank, detail::Message& message)
      : group_(&group), message_(&message), rank_(rank) {}
  ThreadsHandle(ThreadsHandle&& other) noexcept { swap(other); }
  ThreadsHandle& operator=(ThreadsHandle&& other) noexcept {
    ThreadsHandle(std::move(other)).swap(*this);
    return *this;
  }
  ~ThreadsHandle() { finish(); }

  /// Blocks until the operation is complete and its buffers are the caller's again; then does nothing.
  /// Throws CommunicationError on a mismatch, TimeoutError at the deadline, AbortedError if a rank failed.
  void wait() {
    detail::ThreadsGroup* const group = std::exchange(group_, nullptr);
    if (group == nullptr) return;
    if (message_ != nullptr)
      group->messages.wait(rank_, *message_);
    else
      group->collectives.wait(rank_, sequence_);
  }

 private:
  void swap(ThreadsHandle& other) noexcept {
    std::swap(group_, other.group_);
    std::swap(message_, other.message_);
    std::swap(rank_, other.rank_);
    std::swap(sequence_, other.sequence_);
  }

  /// Completes the operation, or gives it up if an exception is on its way: the peers are then freed rather than kept
  /// from this rank's buffers until their deadline. A failure is not lost, the group's next call throws it.
  void finish() noexcept {
    if (group_ == nullptr) return;
    try {
      if (std::uncaught_exceptions() == 0) return wait();
      detail::ThreadsGroup* const group = std::exchange(group_, nullptr);
      if (message_ != nullptr)
        group->messages.withdraw(rank_, *message_);
      else
        group->collectives.withdraw(rank_, sequence_);
    } catch (...) {
    }
  }

  detail::ThreadsGroup* group_ = nullptr;
  detail::Message* message_ = nullptr;
  int rank_ = 0;
  std::uint64_t sequence_ = 0;
};

static_assert(PendingOperation<ThreadsHandle>);

}  // namespace dtrain::comm
