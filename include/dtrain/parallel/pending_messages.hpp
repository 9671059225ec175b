// The messages that a stage has posted and not waited for yet, so that it waits only where a value is needed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::parallel {

/// Runs the messages of a table as `schedule::Waiting::at_use` says: a message is posted at its row; a computation
/// waits for the value it reads, and for the last value that was sent from where it writes. Tables are judged for the
/// strictest way, in which each group is over before the next row, and every wait here is for a message of an earlier
/// group: it ends.
///
/// `before(row)` is called before every computation of a table, `keep(row, handle)` after a message was posted, and
/// `finish()` at its end. Messages that are not over when this object goes are given up, as their handles do.
template <class Handle>
class PendingMessages {
 public:
  /// How many messages are left unfinished at most; above that, the oldest is waited for.
  static constexpr std::size_t most = 32;

  /// Waits for what `row` needs.
  void before(const schedule::Action& row) {
    using enum schedule::ActionKind;
    if (row.kind == forward) {
      settle(row, receive_forward);
      settle(row, send_forward);
    } else if (row.kind == backward || row.kind == backward_input) {
      settle(row, receive_backward);
      settle(row, send_backward);
    }
  }

  /// Takes over the handle of the message that `row` has posted.
  void keep(const schedule::Action& row, Handle handle) {
    if (count_ == most) remove(0);
    messages_[count_].row = row;
    messages_[count_].handle.emplace(std::move(handle));
    ++count_;
  }

  /// Waits for all messages.
  void finish() {
    while (count_ > 0) remove(0);
  }

 private:
  struct Message {
    schedule::Action row{};
    std::optional<Handle> handle{};
  };

  // Waits for the message of this kind in the row's slot, if there is one.
  void settle(const schedule::Action& row, schedule::ActionKind kind) {
    for (std::size_t i = 0; i < count_; ++i) {
      const schedule::Action& other = messages_[i].row;
      if (other.kind == kind && other.chunk == row.chunk && other.slot == row.slot) return remove(i);
    }
  }
  void remove(std::size_t at) {
    Handle handle = std::move(*messages_[at].handle);
    const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(at);
    std::move(first + 1, messages_.begin() + static_cast<std::ptrdiff_t>(count_), first);
    messages_[--count_].handle.reset();
    handle.wait();
  }

  std::array<Message, most> messages_{};
  std::size_t count_ = 0;
};

}  // namespace dtrain::parallel
