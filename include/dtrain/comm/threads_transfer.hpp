// Moves the data of one collective between the buffers of threads, once all ranks have posted it.
//
// The work is cut into tasks that any rank may take, so that an operation needs nobody but its posts: a rank that
// computes does not hold up one that waits, and where ranks outnumber cores the rank that runs does the work.
// A task's result does not depend on who runs it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "dtrain/comm/call_description.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::comm::detail {

/// What the ranks posted for one collective.
struct Postings {
  explicit Postings(std::size_t size) : calls(size), inputs(size), outputs(size), reduce(nullptr) {}

  std::vector<CallDescription> calls;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  ReduceFunction reduce;
  /// Shards, for each rank two lists of `size` counts; empty until the group's first uneven call.
  std::vector<Index> counts;

  [[nodiscard]] int size() const { return static_cast<int>(calls.size()); }
  /// The shards `rank` gave for its input or output.
  [[nodiscard]] std::span<Index> shards(int rank, bool output) {
    const std::size_t row = calls.size();
    return std::span(counts).subspan((static_cast<std::size_t>(rank) * 2 + (output ? 1 : 0)) * row, row);
  }
  [[nodiscard]] std::span<const Index> shards(int rank, bool output) const {
    const std::size_t row = calls.size();
    return std::span(counts).subspan((static_cast<std::size_t>(rank) * 2 + (output ? 1 : 0)) * row, row);
  }
};

/// Bytes of one task, before multiplication by the ranks: large against the cost of taking one, small against caches.
inline constexpr Index task_bytes = 64 * 1024;

class Transfer {
 public:
  /// `reference` is a rank whose call stands for all.
  Transfer(const Postings& postings, int reference)
      : postings_(postings),
        call_(postings.calls[static_cast<std::size_t>(reference)]),
        element_(static_cast<Index>(call_.type.size)),
        reference_(reference) {}

  /// How many tasks the operation is cut into; zero if there is nothing to move.
  [[nodiscard]] Index tasks() const {
    if (call_.operation == Operation::barrier) return 0;
    Index bytes = call_.bytes();
    if (call_.operation == Operation::all_to_all)
      for (const CallDescription& call : postings_.calls) bytes = std::max(bytes, call.bytes());
    return (bytes + task_bytes - 1) / task_bytes;
  }

  void run(Index task, Index tasks) const {
    const Range range = even_share(call_.count, tasks, task);
    switch (call_.operation) {
      case Operation::all_reduce:
        return postings_.reduce(postings_.inputs, range.begin, postings_.outputs, range.begin, range.size(),
                                call_.reduction);
      case Operation::reduce_scatter:
        return reduce_scatter(range);
      case Operation::all_gather:
      case Operation::split:
        return all_gather(range);
      case Operation::broadcast:
        return broadcast(range);
      default:
        return all_to_all(task, tasks);
    }
  }

 private:
  [[nodiscard]] Index shard(int rank) const {
    return call_.uneven ? postings_.shards(reference_, false)[static_cast<std::size_t>(rank)]
                        : call_.count / postings_.size();
  }
  /// Elements that `from` sends to `to` in an all_to_all.
  [[nodiscard]] Index block(int from, int to) const {
    return call_.uneven ? postings_.shards(from, false)[static_cast<std::size_t>(to)] : call_.count / postings_.size();
  }
  [[nodiscard]] const std::byte* input(int rank) const { return postings_.inputs[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::byte* output(int rank) const { return postings_.outputs[static_cast<std::size_t>(rank)]; }

  /// Copies `count` elements; a shard that already lies in its place stays.
  void copy(std::byte* to, Index to_offset, const std::byte* from, Index from_offset, Index count) const {
    if (count == 0) return;
    std::byte* const destination = to + to_offset * element_;
    const std::byte* const source = from + from_offset * element_;
    if (destination != source) std::memcpy(destination, source, static_cast<std::size_t>(count * element_));
  }

  /// Calls `visit(rank, part, begin)` for the part of every rank's shard that lies in `range` of the whole; `begin` is
  /// where the shard starts.
  template <class Visit>
  void for_each_shard(Range range, Visit visit) const {
    Index begin = 0;
    for (int rank = 0; rank < postings_.size() && begin < range.end; ++rank) {
      const Index end = begin + shard(rank);
      const Range part{std::max(begin, range.begin), std::min(end, range.end)};
      if (part.size() > 0) visit(rank, part, begin);
      begin = end;
    }
  }

  void reduce_scatter(Range range) const {
    for_each_shard(range, [&](int rank, Range part, Index begin) {
      postings_.reduce(postings_.inputs, part.begin,
                       std::span(postings_.outputs).subspan(static_cast<std::size_t>(rank), 1), part.begin - begin,
                       part.size(), call_.reduction);
    });
  }
  void all_gather(Range range) const {
    for_each_shard(range, [&](int rank, Range part, Index begin) {
      for (int to = 0; to < postings_.size(); ++to)
        copy(output(to), part.begin, input(rank), part.begin - begin, part.size());
    });
  }
  void broadcast(Range range) const {
    for (int to = 0; to < postings_.size(); ++to)
      if (to != call_.peer) copy(output(to), range.begin, input(call_.peer), range.begin, range.size());
  }
  void all_to_all(Index task, Index tasks) const {
    for (int from = 0; from < postings_.size(); ++from) {
      Index from_offset = 0;
      for (int to = 0; to < postings_.size(); ++to) {
        const Index count = block(from, to);
        Index to_offset = 0;
        for (int before = 0; before < from; ++before) to_offset += block(before, to);
        const Range range = even_share(count, tasks, task);
        copy(output(to), to_offset + range.begin, input(from), from_offset + range.begin, range.size());
        from_offset += count;
      }
    }
  }

  const Postings& postings_;
  const CallDescription& call_;
  Index element_;
  int reference_;
};

}  // namespace dtrain::comm::detail
