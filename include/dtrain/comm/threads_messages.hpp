// Point-to-point messages within one group of threads: sends and receives that meet in the order they were posted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/comm/call_description.hpp"
#include "dtrain/comm/threads_rendezvous.hpp"
#include "dtrain/comm/threads_transfer.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::comm::detail {

/// One side of a message.
struct Message {
  enum class State : std::uint8_t { vacant, posted, matched, complete };

  CallDescription call;
  std::byte* buffer = nullptr;  // of a send: only read
  Message* partner = nullptr;
  Message* next = nullptr;
  std::atomic<State> state{State::vacant};
  // Progress of the copy, kept on the receiving side.
  Index tasks = 0;
  Index taken = 0;
  Index finished = 0;
};

/// Matches sends and receives. The copy is cut into tasks that either side takes while it waits, so a message needs
/// nothing of its ranks but that both have posted it.
class MessageBoard {
 public:
  /// How many messages of one rank may be unfinished.
  static constexpr std::size_t outstanding = 64;

  explicit MessageBoard(Rendezvous& meeting)
      : meeting_(meeting),
        messages_(std::make_unique<Message[]>(static_cast<std::size_t>(meeting.size()) * outstanding)),
        channels_(static_cast<std::size_t>(meeting.size()) * static_cast<std::size_t>(meeting.size())) {}

  /// Posts one side of a message of `rank`.
  Message& post(int rank, const CallDescription& call, std::byte* buffer) {
    Rendezvous::Lock lock(meeting_.mutex());
    if (meeting_.failed()) meeting_.throw_failure(lock, rank, describe(call), call.where);
    Message* const message = vacant(rank);
    if (message == nullptr) {
      meeting_.fail(Failure::misuse, concatenate(meeting_.rank_name(rank), " has ", outstanding,
                                                 " unfinished messages on communicator '", meeting_.name(),
                                                 "', the most there may be; wait for some before the next ",
                                                 operation_name(call.operation), "."));
      meeting_.throw_failure(lock, rank, describe(call), call.where);
    }
    const bool sends = call.operation == Operation::send;
    Channel& channel = channel_of(rank, call);
    message->call = call;
    message->call.sequence = sends ? channel.sends++ : channel.receives++;
    message->buffer = buffer;
    message->partner = message->next = nullptr;
    message->state.store(Message::State::posted, std::memory_order_relaxed);

    // Only one kind can be waiting in a channel: the other would have met it.
    if (channel.first != nullptr && channel.first->call.operation != call.operation) {
      Message* const partner = channel.first;
      channel.first = partner->next;
      if (channel.first == nullptr) channel.last = nullptr;
      match(lock, rank, *message, *partner);
    } else {
      (channel.last == nullptr ? channel.first : channel.last->next) = message;
      channel.last = message;
    }
    return *message;
  }

  /// Returns once the message has been copied, and frees its place.
  void wait(int rank, Message& message) {
    const auto done = [&] { return message.state.load(std::memory_order_acquire) == Message::State::complete; };
    if (!done()) {
      Rendezvous::Lock lock(meeting_.mutex());
      Rendezvous::Deadline deadline(meeting_.deadline());
      while (!done()) {
        if (meeting_.failed()) {
          const CallDescription call = message.call;
          meeting_.wait_for_workers(lock, rank);
          message.state.store(Message::State::vacant, std::memory_order_relaxed);
          meeting_.throw_failure(lock, rank, describe(call), call.where);
        }
        Message* const transfer = receiving_side(message);
        if (transfer != nullptr && transfer->taken < transfer->tasks)
          run_task(lock, *transfer);
        else if (transfer == nullptr && deadline.passed())
          meeting_.fail(Failure::timeout, timeout_sentence(rank, message));
        else if (meeting_.pause(lock, rank, deadline, done))
          break;
      }
    }
    message.state.store(Message::State::vacant, std::memory_order_release);
  }

  /// Gives a message up: the group fails unless it was complete already. After this its buffer is not touched.
  void withdraw(int rank, Message& message) {
    Rendezvous::Lock lock(meeting_.mutex());
    if (message.state.load(std::memory_order_relaxed) != Message::State::complete) {
      if (!meeting_.failed())
        meeting_.fail(Failure::aborted, concatenate(meeting_.rank_name(rank), " gave up ", describe(message.call),
                                                    " because of an exception"));
      meeting_.wait_for_workers(lock, rank);
    }
    message.state.store(Message::State::vacant, std::memory_order_relaxed);
  }

 private:
  /// The unmatched messages from one rank to another, oldest first.
  struct Channel {
    Message* first = nullptr;
    Message* last = nullptr;
    std::uint64_t sends = 0;
    std::uint64_t receives = 0;
  };

  [[nodiscard]] Channel& channel_of(int rank, const CallDescription& call) {
    const bool sends = call.operation == Operation::send;
    const auto from = static_cast<std::size_t>(sends ? rank : call.peer);
    const auto to = static_cast<std::size_t>(sends ? call.peer : rank);
    return channels_[from * static_cast<std::size_t>(meeting_.size()) + to];
  }

  [[nodiscard]] Message* vacant(int rank) {
    Message* const first = messages_.get() + static_cast<std::size_t>(rank) * outstanding;
    for (Message* message = first; message != first + outstanding; ++message)
      if (message->state.load(std::memory_order_acquire) == Message::State::vacant) return message;
    return nullptr;
  }

  /// The message that holds the progress of the copy, or nullptr if `message` has met no partner.
  [[nodiscard]] static Message* receiving_side(Message& message) {
    if (message.partner == nullptr) return nullptr;
    return message.call.operation == Operation::receive ? &message : message.partner;
  }

  void match(Rendezvous::Lock& lock, int rank, Message& message, Message& partner) {
    const CallDescription& mine = message.call;
    const CallDescription& theirs = partner.call;
    if (mine.count != theirs.count || mine.type != theirs.type) {
      message.state.store(Message::State::vacant, std::memory_order_relaxed);
      meeting_.fail(Failure::misuse, concatenate("A message on communicator '", meeting_.name(),
                                                 "' does not fit: ", meeting_.rank_name(rank), " called ",
                                                 describe(mine), ", but ", meeting_.rank_name(mine.peer), " called ",
                                                 describe(theirs), ". Both must name the same type and count."));
      meeting_.throw_failure(lock, rank, describe(mine), mine.where);
    }
    message.partner = &partner;
    partner.partner = &message;
    message.state.store(Message::State::matched, std::memory_order_relaxed);
    partner.state.store(Message::State::matched, std::memory_order_relaxed);
    Message& transfer = *receiving_side(message);
    transfer.taken = transfer.finished = 0;
    transfer.tasks = (mine.bytes() + task_bytes - 1) / task_bytes;
    if (transfer.tasks == 0)
      complete(transfer);
    else if (transfer.tasks == 1)  // small: done before the other side could wake up
      run_task(lock, transfer);
    else
      meeting_.ring(mine.peer);
  }

  void run_task(Rendezvous::Lock& lock, Message& transfer) {
    const Range range = even_share(transfer.call.bytes(), transfer.tasks, transfer.taken++);
    meeting_.begin_work();
    lock.unlock();
    std::memcpy(transfer.buffer + range.begin, transfer.partner->buffer + range.begin,
                static_cast<std::size_t>(range.size()));
    lock.lock();
    meeting_.end_work();
    if (++transfer.finished == transfer.tasks) complete(transfer);
  }

  /// `transfer` is the receiving side; its `peer` is the sender, the sender's `peer` is the receiver.
  void complete(Message& transfer) {
    const int receiver = transfer.partner->call.peer;
    const int sender = transfer.call.peer;
    Message& sent = *transfer.partner;
    sent.state.store(Message::State::complete, std::memory_order_release);
    transfer.state.store(Message::State::complete, std::memory_order_release);
    meeting_.ring(receiver);
    if (sender != receiver) meeting_.ring(sender);
  }

  [[gnu::cold]] [[nodiscard]] std::string timeout_sentence(int rank, const Message& message) const {
    return concatenate(meeting_.rank_name(rank), " waited ", static_cast<double>(meeting_.deadline().count()) / 1000,
                       " s in ", describe(message.call), " on communicator '", meeting_.name(), "' for ",
                       meeting_.rank_name(message.call.peer), ", which did not post the matching ",
                       message.call.operation == Operation::send ? "receive" : "send", ".");
  }

  Rendezvous& meeting_;
  std::unique_ptr<Message[]> messages_;
  std::vector<Channel> channels_;
};

}  // namespace dtrain::comm::detail
