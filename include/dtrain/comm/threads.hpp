// Communicators whose ranks are threads of one process, reading and writing each other's buffers directly.
//
// Reductions add in rank order, whoever computes them, so all ranks get the same bits in every run. A call allocates
// nothing once its kind has been used on the communicator.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/comm/call_checks.hpp"
#include "dtrain/comm/communicator.hpp"
#include "dtrain/comm/threads_group.hpp"
#include "dtrain/comm/threads_handle.hpp"
#include "dtrain/core/random.hpp"

namespace dtrain::comm {

/// One rank of a group of threads: a reference, cheap to copy, used by its own thread only.
class Threads {
 public:
  using Handle = ThreadsHandle;

  Threads(detail::ThreadsGroup& group, int rank) : group_(&group), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->meeting.size(); }
  [[nodiscard]] std::string_view name() const { return group_->meeting.name(); }
  /// What this rank has called on this communicator so far.
  [[nodiscard]] const Traffic& traffic() const { return group_->traffic[static_cast<std::size_t>(rank_)].value; }

  template <Reducible T, std::size_t Extent>
  Handle all_reduce(std::span<T, Extent> data, Reduction reduction = Reduction::sum,
                    std::source_location where = std::source_location::current()) {
    detail::CollectiveCall posted = collective<T>(Operation::all_reduce, data.data(), data.data(), data.size(), where);
    posted.call.reduction = reduction;
    posted.reduce = &reduce_elements<T>;
    return post(posted, {});
  }

  template <Reducible T, std::size_t Extent>
  Handle reduce_scatter(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                        Reduction reduction = Reduction::sum,
                        std::source_location where = std::source_location::current()) {
    return scatter<T>(input, output, std::span<const Index>{}, false, reduction, where);
  }
  template <Reducible T, std::size_t Extent>
  Handle reduce_scatter(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                        std::span<const Index> counts, Reduction reduction = Reduction::sum,
                        std::source_location where = std::source_location::current()) {
    return scatter<T>(input, output, counts, true, reduction, where);
  }

  template <Movable T, std::size_t Extent>
  Handle all_gather(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::source_location where = std::source_location::current()) {
    return gather<T>(Operation::all_gather, input, output, std::span<const Index>{}, false, where);
  }
  template <Movable T, std::size_t Extent>
  Handle all_gather(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::span<const Index> counts, std::source_location where = std::source_location::current()) {
    return gather<T>(Operation::all_gather, input, output, counts, true, where);
  }

  template <Movable T, std::size_t Extent>
  Handle broadcast(std::span<T, Extent> data, int root, std::source_location where = std::source_location::current()) {
    detail::CollectiveCall posted = collective<T>(Operation::broadcast, data.data(), data.data(), data.size(), where);
    posted.call.peer = root;
    return post(posted, peer_fault(root, size()));
  }

  template <Movable T, std::size_t Extent>
  Handle all_to_all(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::source_location where = std::source_location::current()) {
    detail::CollectiveCall posted =
        collective<T>(Operation::all_to_all, input.data(), output.data(), input.size(), where);
    std::string fault = even_block_fault(input.size(), output.size(), size());
    if (fault.empty()) fault = disjoint_fault<T>(input, output);
    return post(posted, fault);
  }
  template <Movable T, std::size_t Extent>
  Handle all_to_all(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::span<const Index> send_counts, std::span<const Index> receive_counts,
                    std::source_location where = std::source_location::current()) {
    detail::CollectiveCall posted =
        collective<T>(Operation::all_to_all, input.data(), output.data(), input.size(), where);
    posted.call.uneven = true;
    posted.input_counts = send_counts;
    posted.output_counts = receive_counts;
    std::string fault = block_fault(input.size(), output.size(), send_counts, receive_counts, size());
    if (fault.empty()) fault = disjoint_fault<T>(input, output);
    return post(posted, fault);
  }

  template <class T, std::size_t Extent>
    requires Movable<std::remove_const_t<T>>
  Handle send(std::span<T, Extent> data, int to, std::source_location where = std::source_location::current()) {
    using Element = std::remove_const_t<T>;
    // One record serves both sides of a message; a sender's buffer is only read.
    auto* const bytes = reinterpret_cast<std::byte*>(const_cast<Element*>(data.data()));
    return message<Element>(Operation::send, bytes, data.size(), to, where);
  }
  template <Movable T, std::size_t Extent>
  Handle receive(std::span<T, Extent> data, int from, std::source_location where = std::source_location::current()) {
    return message<T>(Operation::receive, reinterpret_cast<std::byte*>(data.data()), data.size(), from, where);
  }

  Handle barrier(std::source_location where = std::source_location::current()) {
    detail::CollectiveCall posted;
    posted.call.operation = Operation::barrier;
    posted.call.where = where;
    return post(posted, {});
  }

  /// The communicator named `name` of the ranks that gave the same `color`, numbered by `key`, then by rank; none for a
  /// negative color. Blocks; allocates. The group lives as long as its world.
  [[nodiscard]] std::optional<Threads> split(int color, int key, std::string_view name,
                                             std::source_location where = std::source_location::current());

  /// Frees all waiters of all groups of this world with AbortedError, which tells them `reason`.
  void abort(std::string_view reason) {
    const int world_rank = group_->meeting.world_ranks()[static_cast<std::size_t>(rank_)];
    group_->registry.fail(concatenate("rank ", world_rank, " failed: ", reason));
  }

 private:
  template <class T>
  static detail::CollectiveCall collective(Operation operation, const T* input, T* output, std::size_t count,
                                           const std::source_location& where) {
    detail::CollectiveCall posted;
    posted.call.operation = operation;
    posted.call.type = element_type<T>();
    posted.call.count = static_cast<Index>(count);
    posted.call.where = where;
    posted.input = reinterpret_cast<const std::byte*>(input);
    posted.output = reinterpret_cast<std::byte*>(output);
    return posted;
  }

  template <class T>
  static std::string disjoint_fault(std::span<const T> input, std::span<T> output) {
    const bool same = input.data() == output.data() && !input.empty();
    return same ? "was given one buffer for input and output"
                : overlap_fault(std::as_bytes(input), std::as_bytes(output), 0);
  }

  /// Where this rank's shard begins in the whole, in bytes.
  template <class T>
  [[nodiscard]] std::size_t own_offset(std::span<const Index> counts, bool uneven, std::size_t shard) const {
    return sizeof(T) * (uneven ? static_cast<std::size_t>(detail::shard_begin(counts, rank_))
                               : shard * static_cast<std::size_t>(rank_));
  }

  template <class T>
  Handle scatter(std::span<const T> input, std::span<T> output, std::span<const Index> counts, bool uneven,
                 Reduction reduction, const std::source_location& where) {
    detail::CollectiveCall posted =
        collective<T>(Operation::reduce_scatter, input.data(), output.data(), input.size(), where);
    posted.call.uneven = uneven;
    posted.call.reduction = reduction;
    posted.reduce = &reduce_elements<T>;
    posted.input_counts = counts;
    std::string fault = uneven ? shard_fault(input.size(), output.size(), counts, rank_, size())
                               : even_shard_fault(input.size(), output.size(), size());
    if (fault.empty())
      fault = overlap_fault(std::as_bytes(input), std::as_bytes(output), own_offset<T>(counts, uneven, output.size()));
    return post(posted, fault);
  }

  template <class T>
  Handle gather(Operation operation, std::span<const T> input, std::span<T> output, std::span<const Index> counts,
                bool uneven, const std::source_location& where) {
    detail::CollectiveCall posted = collective<T>(operation, input.data(), output.data(), output.size(), where);
    posted.call.uneven = uneven;
    posted.input_counts = counts;
    std::string fault = uneven ? shard_fault(output.size(), input.size(), counts, rank_, size())
                               : even_shard_fault(output.size(), input.size(), size());
    if (fault.empty())
      fault = overlap_fault(std::as_bytes(output), std::as_bytes(input), own_offset<T>(counts, uneven, input.size()));
    return post(posted, fault);
  }

  Handle post(const detail::CollectiveCall& posted, std::string_view fault) {
    if (!fault.empty()) group_->collectives.refuse(rank_, posted.call, fault);
    const std::uint64_t sequence = group_->collectives.post(rank_, posted);
    record(posted.call);
    return {*group_, rank_, sequence};
  }

  template <class T>
  Handle message(Operation operation, std::byte* buffer, std::size_t count, int peer,
                 const std::source_location& where) {
    CallDescription call;
    call.operation = operation;
    call.type = element_type<T>();
    call.count = static_cast<Index>(count);
    call.peer = peer;
    call.where = where;
    if (const std::string fault = peer_fault(peer, size()); !fault.empty())
      group_->collectives.refuse(rank_, call, fault);
    detail::Message& posted = group_->messages.post(rank_, call, buffer);
    record(call);
    return {*group_, rank_, posted};
  }

  void record(const CallDescription& call) { group_->traffic[static_cast<std::size_t>(rank_)].value.record(call); }

  detail::ThreadsGroup* group_;
  int rank_;
};

[[gnu::cold]] inline std::optional<Threads> Threads::split(int color, int key, std::string_view name,
                                                           std::source_location where) {
  struct Request {
    int color;
    int key;
    std::uint64_t name_hash;
    std::array<char, 40> name;
    detail::ThreadsGroup* group;
  };
  Request mine{color, key, hash_name(name), {}, nullptr};
  std::copy_n(name.begin(), std::min(name.size(), mine.name.size() - 1), mine.name.begin());
  std::vector<Request> requests(static_cast<std::size_t>(size()));
  const auto exchange = [&] {
    gather<Request>(Operation::split, std::span(&mine, 1), requests, {}, false, where).wait();
  };
  exchange();

  for (std::size_t rank = 1; rank < requests.size(); ++rank) {
    if (requests[rank].name_hash == requests[0].name_hash) continue;
    const detail::CollectiveCall asked = collective<Request>(Operation::split, nullptr, nullptr, 0, where);
    group_->collectives.refuse(rank_, asked.call,
                               concatenate("was asked for '", requests[0].name.data(), "' by rank 0 and for '",
                                           requests[rank].name.data(), "' by rank ", rank));
  }

  std::vector<int> members;
  if (color >= 0) {
    for (int rank = 0; rank < size(); ++rank)
      if (requests[static_cast<std::size_t>(rank)].color == color) members.push_back(rank);
    std::ranges::stable_sort(members, {}, [&](int rank) { return requests[static_cast<std::size_t>(rank)].key; });
    if (members.front() == rank_) {
      std::vector<int> world_ranks;
      for (const int member : members)
        world_ranks.push_back(group_->meeting.world_ranks()[static_cast<std::size_t>(member)]);
      mine.group = &group_->registry.add(std::string(name), std::move(world_ranks));
    }
  }
  exchange();
  if (color < 0) return std::nullopt;
  const auto own = std::ranges::find(members, rank_);
  return Threads(*requests[static_cast<std::size_t>(members.front())].group, static_cast<int>(own - members.begin()));
}

/// Options of a world of threads.
struct ThreadsOptions {
  /// How long a wait may last before it ends in TimeoutError; positive.
  std::chrono::milliseconds deadline{60'000};
};

/// `size` ranks that will be threads of this process. It makes no threads itself; it must outlive all communicators.
class ThreadsWorld {
 public:
  /// Throws ConfigurationError if size or deadline is not positive.
  explicit ThreadsWorld(int size, ThreadsOptions options = {},
                        std::source_location where = std::source_location::current())
      : registry_((check(size, options, where), size), options.deadline), world_(&world_group(size)) {}
  ThreadsWorld(const ThreadsWorld&) = delete;
  ThreadsWorld& operator=(const ThreadsWorld&) = delete;

  [[nodiscard]] int size() const { return world_->meeting.size(); }

  /// The communicator of all ranks, named "world", as `rank` sees it.
  [[nodiscard]] Threads communicator(int rank, std::source_location where = std::source_location::current()) {
    if (rank < 0 || rank >= size())
      throw ConfigurationError(
          concatenate("There is no rank ", rank, " in a world of ", size(), " ranks, which are 0 to ", size() - 1, "."),
          where);
    return {*world_, rank};
  }

  /// Tells all ranks that `rank` has failed: whoever waits, or calls anything later, gets an AbortedError with the
  /// first such cause. May be called by any thread.
  void fail(int rank, std::string_view what) { registry_.fail(concatenate("rank ", rank, " failed: ", what)); }
  /// The first cause given to `fail` or `abort`, if any.
  [[nodiscard]] std::optional<std::string> failure() const { return registry_.cause(); }

 private:
  static void check(int size, const ThreadsOptions& options, const std::source_location& where) {
    if (size < 1) throw ConfigurationError(concatenate("A world needs at least one rank, not ", size, "."), where);
    if (options.deadline.count() <= 0)
      throw ConfigurationError(concatenate("The deadline of a world must be positive, not ", options.deadline.count(),
                                           " ms; a wait without end would hide a hang."),
                               where);
  }
  detail::ThreadsGroup& world_group(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return registry_.add("world", std::move(ranks));
  }

  detail::ThreadsRegistry registry_;
  detail::ThreadsGroup* world_;
};

static_assert(Communicator<Threads>);

}  // namespace dtrain::comm
