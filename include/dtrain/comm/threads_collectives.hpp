// The collectives of one group of threads: a ring of operations, completed in the order they were posted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtrain/comm/call_description.hpp"
#include "dtrain/comm/threads_rendezvous.hpp"
#include "dtrain/comm/threads_transfer.hpp"

namespace dtrain::comm::detail {

/// A rank's side of a collective: what it calls, and its buffers.
struct CollectiveCall {
  CallDescription call;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  ReduceFunction reduce = nullptr;
  /// Shards of input and output; empty when even.
  std::span<const Index> input_counts{};
  std::span<const Index> output_counts{};
};

/// Operation number s of all ranks meets in slot s % 64. A rank posts without waiting unless 64 operations are
/// unfinished, in which case it waits for the oldest.
class CollectiveQueue {
 public:
  static constexpr std::size_t slots = 64;

  explicit CollectiveQueue(Rendezvous& meeting)
      : meeting_(meeting), posted_(static_cast<std::size_t>(meeting.size()), 0) {
    slots_.reserve(slots);
    for (std::size_t slot = 0; slot < slots; ++slot) slots_.emplace_back(static_cast<std::size_t>(meeting.size()));
  }

  /// Posts the next operation of `rank` and returns its number.
  std::uint64_t post(int rank, CollectiveCall posted) {
    Rendezvous::Lock lock(meeting_.mutex());
    const std::uint64_t sequence = posted_[static_cast<std::size_t>(rank)];
    posted.call.sequence = sequence;
    if (sequence >= slots) {
      wait(lock, rank, sequence - slots);
      if (!lock.owns_lock()) lock.lock();
    }
    if (meeting_.failed()) meeting_.throw_failure(lock, rank, describe(posted.call), posted.call.where);

    Slot& slot = slot_of(sequence);
    store(slot, rank, posted);
    posted_[static_cast<std::size_t>(rank)] = sequence + 1;
    if (slot.arrived > 0 && !matches(slot, rank)) {
      meeting_.fail(Failure::misuse, mismatch_sentence(slot, rank));
      meeting_.throw_failure(lock, rank, describe(posted.call), posted.call.where);
    }
    if (slot.arrived == 0) slot.reference = rank;
    if (++slot.arrived == meeting_.size()) begin(lock, sequence);
    return sequence;
  }

  /// Returns once operation `sequence` is complete, doing its share of the work.
  void wait(int rank, std::uint64_t sequence) {
    if (completed_.load(std::memory_order_acquire) > sequence) return;
    Rendezvous::Lock lock(meeting_.mutex());
    wait(lock, rank, sequence);
  }

  /// Gives an operation up: the group fails unless it was complete already. After this no buffer is touched.
  void withdraw(int rank, std::uint64_t sequence) {
    Rendezvous::Lock lock(meeting_.mutex());
    if (completed_.load(std::memory_order_relaxed) > sequence) return;
    if (!meeting_.failed())
      meeting_.fail(Failure::aborted, concatenate(meeting_.rank_name(rank), " gave up ",
                                                  description(slot_of(sequence), rank), " because of an exception"));
    meeting_.wait_for_workers(lock, rank);
  }

  /// Stops the group because `rank` called something that cannot be carried out.
  [[noreturn]] void refuse(int rank, CallDescription call, std::string_view reason) {
    Rendezvous::Lock lock(meeting_.mutex());
    call.sequence = posted_[static_cast<std::size_t>(rank)];
    meeting_.fail(Failure::misuse, concatenate(describe(call), ", called by ", meeting_.rank_name(rank),
                                               " on communicator '", meeting_.name(), "', ", reason, "."));
    meeting_.throw_failure(lock, rank, describe(call), call.where);
  }

 private:
  struct Slot {
    explicit Slot(std::size_t size) : postings(size) {}
    Postings postings;
    int arrived = 0;
    int reference = 0;
    Index tasks = 0;
    Index taken = 0;
    Index finished = 0;
  };

  [[nodiscard]] Slot& slot_of(std::uint64_t sequence) { return slots_[sequence % slots]; }

  void store(Slot& slot, int rank, const CollectiveCall& posted) {
    Postings& postings = slot.postings;
    const auto index = static_cast<std::size_t>(rank);
    postings.calls[index] = posted.call;
    postings.inputs[index] = posted.input;
    postings.outputs[index] = posted.output;
    postings.reduce = posted.reduce;
    if (!posted.call.uneven) return;
    const std::size_t size = postings.calls.size();
    if (postings.counts.empty())  // all slots at once, so that one call warms up the whole ring
      for (Slot& each : slots_) each.postings.counts.resize(2 * size * size);
    std::ranges::copy(posted.input_counts, postings.shards(rank, false).begin());
    std::ranges::copy(posted.output_counts, postings.shards(rank, true).begin());
  }

  /// Does the call of `rank` agree with those that arrived before it?
  [[nodiscard]] bool matches(const Slot& slot, int rank) const { return conflicting_rank(slot, rank) < 0; }
  /// A rank whose call contradicts that of `rank`, or -1.
  [[nodiscard]] int conflicting_rank(const Slot& slot, int rank) const {
    const Postings& postings = slot.postings;
    const CallDescription& mine = postings.calls[static_cast<std::size_t>(rank)];
    if (!calls_match(mine, postings.calls[static_cast<std::size_t>(slot.reference)])) return slot.reference;
    if (!mine.uneven) return -1;
    if (mine.operation != Operation::all_to_all)
      return std::ranges::equal(postings.shards(rank, false), postings.shards(slot.reference, false)) ? -1
                                                                                                      : slot.reference;
    for (int other = 0; other < postings.size(); ++other) {
      const CallDescription& theirs = postings.calls[static_cast<std::size_t>(other)];
      if (other == rank || theirs.sequence != mine.sequence || !has_posted(other, mine.sequence)) continue;
      const auto me = static_cast<std::size_t>(rank);
      const auto them = static_cast<std::size_t>(other);
      if (postings.shards(rank, false)[them] != postings.shards(other, true)[me] ||
          postings.shards(rank, true)[them] != postings.shards(other, false)[me])
        return other;
    }
    return -1;
  }
  [[nodiscard]] bool has_posted(int rank, std::uint64_t sequence) const {
    return posted_[static_cast<std::size_t>(rank)] > sequence;
  }

  [[nodiscard]] std::string description(const Slot& slot, int rank) const {
    const CallDescription& call = slot.postings.calls[static_cast<std::size_t>(rank)];
    return describe(call, call.uneven ? slot.postings.shards(rank, false) : std::span<const Index>{});
  }

  [[gnu::cold]] [[nodiscard]] std::string mismatch_sentence(const Slot& slot, int rank) const {
    const int other = conflicting_rank(slot, rank);
    const int low = std::min(rank, other);
    const int high = std::max(rank, other);
    std::string sentence = concatenate("The ranks of communicator '", meeting_.name(),
                                       "' disagree: ", meeting_.rank_name(low), " called ", description(slot, low),
                                       ", but ", meeting_.rank_name(high), " called ", description(slot, high), ".");
    const CallDescription& call = slot.postings.calls[static_cast<std::size_t>(rank)];
    if (call.operation == Operation::all_to_all &&
        calls_match(call, slot.postings.calls[static_cast<std::size_t>(other)])) {
      const auto them = static_cast<std::size_t>(other);
      const auto me = static_cast<std::size_t>(rank);
      sentence += concatenate(" ", meeting_.rank_name(rank), " sends ", slot.postings.shards(rank, false)[them],
                              " where ", meeting_.rank_name(other), " expects ", slot.postings.shards(other, true)[me],
                              ", and expects ", slot.postings.shards(rank, true)[them], " where the other sends ",
                              slot.postings.shards(other, false)[me], ".");
    }
    return sentence + " All ranks must make the same calls in the same order.";
  }

  /// Called when the last rank has posted `sequence`. Small work is done right here: waking a sleeper costs more.
  void begin(Rendezvous::Lock& lock, std::uint64_t sequence) {
    Slot& slot = slot_of(sequence);
    slot.tasks = Transfer(slot.postings, slot.reference).tasks();
    if (completed_.load(std::memory_order_relaxed) != sequence) return;  // its turn comes when those before it are done
    if (slot.tasks == 0)
      complete();
    else if (slot.tasks == 1)
      run_task(lock, slot);
    else
      meeting_.ring_all();
  }

  [[nodiscard]] bool ready(const Slot& slot) const { return slot.arrived == meeting_.size(); }

  /// Marks the oldest operation complete, and those after it that have nothing to move.
  void complete() {
    std::uint64_t front = completed_.load(std::memory_order_relaxed);
    do {
      Slot& slot = slot_of(front);
      slot.arrived = 0;
      slot.taken = slot.finished = 0;
      ++front;
    } while (ready(slot_of(front)) && slot_of(front).tasks == 0);
    completed_.store(front, std::memory_order_release);
    meeting_.ring_all();
  }

  /// Takes and runs one task of the oldest operation.
  void run_task(Rendezvous::Lock& lock, Slot& slot) {
    const Index task = slot.taken++;
    meeting_.begin_work();
    lock.unlock();
    Transfer(slot.postings, slot.reference).run(task, slot.tasks);
    lock.lock();
    meeting_.end_work();
    if (++slot.finished == slot.tasks) complete();
  }

  void wait(Rendezvous::Lock& lock, int rank, std::uint64_t sequence) {
    Rendezvous::Deadline deadline(meeting_.deadline());
    const auto done = [&] { return completed_.load(std::memory_order_acquire) > sequence; };
    for (;;) {
      const std::uint64_t front = completed_.load(std::memory_order_relaxed);
      if (front > sequence) return;
      Slot& slot = slot_of(front);
      if (meeting_.failed()) {
        const Slot& mine = slot_of(sequence);
        meeting_.throw_failure(lock, rank, description(mine, rank),
                               mine.postings.calls[static_cast<std::size_t>(rank)].where);
      }
      if (ready(slot) && slot.taken < slot.tasks)
        run_task(lock, slot);
      else if (!ready(slot) && deadline.passed())
        meeting_.fail(Failure::timeout, timeout_sentence(rank, front));
      else if (meeting_.pause(lock, rank, deadline, done))
        return;
    }
  }

  [[gnu::cold]] [[nodiscard]] std::string timeout_sentence(int rank, std::uint64_t sequence) {
    std::string missing;
    for (int other = 0; other < meeting_.size(); ++other) {
      if (has_posted(other, sequence)) continue;
      missing += concatenate(missing.empty() ? "" : ", ", meeting_.rank_name(other));
      const std::uint64_t count = posted_[static_cast<std::size_t>(other)];
      missing += count == 0 ? std::string(" (which has called nothing on it yet)")
                            : concatenate(" (whose last call was ", description(slot_of(count - 1), other), ")");
    }
    return concatenate(meeting_.rank_name(rank), " waited ", static_cast<double>(meeting_.deadline().count()) / 1000,
                       " s in ", description(slot_of(sequence), rank), " on communicator '", meeting_.name(), "' for ",
                       missing, ".");
  }

  Rendezvous& meeting_;
  std::vector<std::uint64_t> posted_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> completed_{0};
};

}  // namespace dtrain::comm::detail
