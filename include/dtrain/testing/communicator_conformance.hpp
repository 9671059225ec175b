// The conformance suite of communicators: what every model of comm::Communicator must do, whatever moves the data.
//
// Each function is called by all ranks of the communicator and throws dtrain::Error at the first deviation. All values
// are small integers, so that every order of summation gives the same bits in every element type.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/testing/communicator_mismatch.hpp"

namespace dtrain::testing {

/// The element counts that collectives are tried with.
inline constexpr std::array<Index, 7> conformance_counts = {0, 1, 2, 3, 17, 1000, 100003};

namespace detail {

/// Element `index` of `rank`: exact in bfloat16 and float16, as is the sum over up to 20 ranks.
template <class T>
T sample(int rank, Index index) {
  return static_cast<T>(static_cast<float>((Index{rank} * 3 + index * 7) % 13));
}
template <class T>
std::vector<T> samples(int rank, Index begin, Index count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = sample<T>(rank, begin + i);
  return values;
}
template <class T>
T sample_sum(int size, Index index) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += static_cast<float>(sample<float>(rank, index));
  return static_cast<T>(sum);
}

template <class T>
bool same(std::span<const T> a, std::span<const T> b) {
  return std::ranges::equal(a, b,
                            [](const T& x, const T& y) { return static_cast<float>(x) == static_cast<float>(y); });
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return same(std::span<const T>(a), std::span<const T>(b));
}

/// Ways to divide `count` elements among `size` ranks: nearly even, the last ranks short or empty, the first ones
/// empty.
inline std::array<std::vector<Index>, 3> divisions(Index count, int size) {
  std::array<std::vector<Index>, 3> ways;
  const Index large = 2 * (count / size) + 1;
  for (int rank = 0; rank < size; ++rank) {
    ways[0].push_back(even_share(count, size, rank).size());
    ways[1].push_back(std::clamp<Index>(count - rank * large, 0, rank + 1 == size ? count : large));
  }
  ways[2].assign(ways[1].rbegin(), ways[1].rend());
  return ways;
}
inline Index before(std::span<const Index> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, Index{0});
}
template <class T>
std::span<T> shard_of(std::vector<T>& whole, std::span<const Index> counts, int rank) {
  return std::span(whole).subspan(static_cast<std::size_t>(before(counts, rank)),
                                  static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
}

}  // namespace detail

/// all_reduce in all reductions, one at a time and many at once.
template <class T, class C>
  requires comm::AllReduces<C, T>
void check_all_reduce(C& communicator, Index count) {
  const int size = communicator.size();
  std::vector<T> expected;
  for (Index i = 0; i < count; ++i) expected.push_back(detail::sample_sum<T>(size, i));
  std::vector<T> data = detail::samples<T>(communicator.rank(), 0, count);
  communicator.all_reduce(std::span(data)).wait();
  require(detail::same(data, expected), concatenate("all_reduce sums ", count, " elements"));

  for (const comm::Reduction reduction : {comm::Reduction::minimum, comm::Reduction::maximum}) {
    data = detail::samples<T>(communicator.rank(), 0, count);
    for (Index i = 0; i < count; ++i) {
      float extreme = detail::sample<float>(0, i);
      for (int rank = 1; rank < size; ++rank)
        extreme = reduction == comm::Reduction::minimum ? std::min(extreme, detail::sample<float>(rank, i))
                                                        : std::max(extreme, detail::sample<float>(rank, i));
      expected[static_cast<std::size_t>(i)] = static_cast<T>(extreme);
    }
    communicator.all_reduce(std::span(data), reduction).wait();
    require(detail::same(data, expected), concatenate("all_reduce finds the ", comm::reduction_name(reduction)));
  }

  data.assign(static_cast<std::size_t>(count), static_cast<T>(communicator.rank() % 2 == 0 ? 2.0f : 1.0f));
  expected.assign(data.size(), static_cast<T>(static_cast<float>(1 << ((size + 1) / 2))));
  communicator.all_reduce(std::span(data), comm::Reduction::product).wait();
  require(detail::same(data, expected), "all_reduce multiplies");

  // Posted together, waited for in the opposite order.
  std::array<std::vector<T>, 5> buffers;
  std::vector<typename C::Handle> handles;
  for (auto& buffer : buffers) {
    buffer = detail::samples<T>(communicator.rank(), static_cast<Index>(handles.size()), count);
    handles.push_back(communicator.all_reduce(std::span(buffer)));
  }
  while (!handles.empty()) {
    handles.back().wait();
    handles.pop_back();
    const auto& buffer = buffers[handles.size()];
    for (Index i = 0; i < count; ++i)
      expected[static_cast<std::size_t>(i)] = detail::sample_sum<T>(size, static_cast<Index>(handles.size()) + i);
    require(detail::same(buffer, expected), "all_reduces posted together do not mix");
  }
}

/// reduce_scatter with even and uneven shards, into another buffer and into its own shard.
template <class T, class C>
  requires comm::ReducesScatter<C, T>
void check_reduce_scatter(C& communicator, Index count) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  const auto expected_at = [&](Index begin, Index length) {
    std::vector<T> values;
    for (Index i = 0; i < length; ++i) values.push_back(detail::sample_sum<T>(size, begin + i));
    return values;
  };
  const std::vector<T> even = detail::samples<T>(rank, 0, count * size);
  std::vector<T> output(static_cast<std::size_t>(count));
  communicator.reduce_scatter(std::span(even), std::span(output)).wait();
  require(detail::same(output, expected_at(rank * count, count)), "reduce_scatter sums even shards");

  for (const auto& counts : detail::divisions(count, size)) {
    std::vector<T> input = detail::samples<T>(rank, 0, count);
    const auto expected = expected_at(detail::before(counts, rank), counts[static_cast<std::size_t>(rank)]);
    output.assign(expected.size(), T{});
    communicator.reduce_scatter(std::span(input), std::span(output), std::span(counts)).wait();
    require(detail::same(output, expected), concatenate("reduce_scatter sums shards of ", join(counts)));
    require(detail::same(input, detail::samples<T>(rank, 0, count)), "reduce_scatter leaves its input as it was");

    const std::span<T> own = detail::shard_of(input, counts, rank);
    communicator.reduce_scatter(std::span(input), own, std::span(counts)).wait();
    require(detail::same(std::span<const T>(own), std::span<const T>(expected)), "reduce_scatter works in place");
  }
}

/// all_gather with even and uneven shards, from another buffer and from its own shard.
template <class T, class C>
  requires comm::AllGathers<C, T>
void check_all_gather(C& communicator, Index count) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  std::vector<T> expected;
  for (int each = 0; each < size; ++each)
    for (Index i = 0; i < count; ++i) expected.push_back(detail::sample<T>(each, i));
  const std::vector<T> even = detail::samples<T>(rank, 0, count);
  std::vector<T> output(expected.size());
  communicator.all_gather(std::span(even), std::span(output)).wait();
  require(detail::same(output, expected), "all_gather joins even shards");

  for (const auto& counts : detail::divisions(count, size)) {
    expected.clear();
    for (int each = 0; each < size; ++each)
      for (Index i = 0; i < counts[static_cast<std::size_t>(each)]; ++i) expected.push_back(detail::sample<T>(each, i));
    const std::vector<T> input = detail::samples<T>(rank, 0, counts[static_cast<std::size_t>(rank)]);
    output.assign(expected.size(), T{});
    communicator.all_gather(std::span(input), std::span(output), std::span(counts)).wait();
    require(detail::same(output, expected), concatenate("all_gather joins shards of ", join(counts)));

    output.assign(expected.size(), T{});
    const std::span<T> own = detail::shard_of(output, counts, rank);
    std::ranges::copy(input, own.begin());
    communicator.all_gather(std::span<const T>(own), std::span(output), std::span(counts)).wait();
    require(detail::same(output, expected), "all_gather works in place");
  }
}

/// broadcast from every root.
template <class T, class C>
  requires comm::Broadcasts<C, T>
void check_broadcast(C& communicator, Index count) {
  for (int root = 0; root < communicator.size(); ++root) {
    std::vector<T> data = detail::samples<T>(communicator.rank(), 0, count);
    communicator.broadcast(std::span(data), root).wait();
    require(detail::same(data, detail::samples<T>(root, 0, count)), concatenate("broadcast from rank ", root));
  }
}

/// all_to_all with equal blocks, and with blocks of `(from + 2 to) % 5 * count / 4` elements.
template <class T, class C>
  requires comm::AllToAlls<C, T>
void check_all_to_all(C& communicator, Index count) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  const auto element = [](int from, int to, Index i) { return detail::sample<T>(from * 5 + to, i); };
  for (const bool equal : {true, false}) {
    std::vector<Index> send_counts;
    std::vector<Index> receive_counts;
    std::vector<T> input;
    std::vector<T> expected;
    for (int peer = 0; peer < size; ++peer) {
      send_counts.push_back(equal ? count : (rank + 2 * peer) % 5 * count / 4);
      receive_counts.push_back(equal ? count : (peer + 2 * rank) % 5 * count / 4);
      for (Index i = 0; i < send_counts.back(); ++i) input.push_back(element(rank, peer, i));
      for (Index i = 0; i < receive_counts.back(); ++i) expected.push_back(element(peer, rank, i));
    }
    std::vector<T> output(expected.size());
    if (equal)
      communicator.all_to_all(std::span(input), std::span(output)).wait();
    else
      communicator.all_to_all(std::span(input), std::span(output), std::span(send_counts), std::span(receive_counts))
          .wait();
    require(detail::same(output, expected), concatenate("all_to_all with ", equal ? "equal" : "uneven", " blocks"));
  }
}

/// Rings of messages in both directions at once, sends waited for before receives and after them, and messages that
/// keep their order. A group of one has nobody to send to and passes.
template <class T, class C>
  requires comm::SendsReceives<C, T>
void check_messages(C& communicator, Index count) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  if (size == 1) return;
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  const std::vector<T> data = detail::samples<T>(rank, 0, count);
  for (const bool sends_first : {true, false}) {
    std::vector<T> from_previous(data.size());
    std::vector<T> from_next(data.size());
    auto forward = communicator.send(std::span(data), next);
    auto backward = communicator.send(std::span(data), previous);
    auto left = communicator.receive(std::span(from_previous), previous);
    auto right = communicator.receive(std::span(from_next), next);
    if (sends_first)
      comm::wait_all(forward, backward, right, left);
    else
      comm::wait_all(left, right, backward, forward);
    // With two ranks both messages come from the same peer; they are equal.
    require(detail::same(from_previous, detail::samples<T>(previous, 0, count)), "a ring of messages, forward");
    require(detail::same(from_next, detail::samples<T>(next, 0, count)), "a ring of messages, backward");
  }

  std::array<std::vector<T>, 4> sent;
  std::array<std::vector<T>, 4> received;
  std::vector<typename C::Handle> handles;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = detail::samples<T>(rank, static_cast<Index>(i), count);
    received[i].resize(sent[i].size());
    handles.push_back(communicator.send(std::span(sent[i]), next));
  }
  for (auto& buffer : received) handles.push_back(communicator.receive(std::span(buffer), previous));
  for (auto& handle : handles) handle.wait();
  for (std::size_t i = 0; i < received.size(); ++i)
    require(detail::same(received[i], detail::samples<T>(previous, static_cast<Index>(i), count)),
            "messages between two ranks keep their order");
}

/// Sub-groups: halves by parity, numbered backwards, one rank left out, used at the same time as their parent.
template <comm::Communicator C>
void check_split(C& communicator) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  std::optional<C> half = communicator.split(rank % 2, -rank, "half");
  require(half.has_value(), "split gives a communicator for a color of zero or more");
  const int members = (size - rank % 2 + 1) / 2;
  require(half->size() == members, "split counts the ranks of a color");
  require(half->rank() == members - 1 - rank / 2, "split numbers ranks by key");

  std::array<std::int32_t, 1> of_half{rank};
  std::array<std::int32_t, 1> of_all{rank};
  auto first = communicator.all_reduce(std::span<std::int32_t>(of_all));
  auto second = half->all_reduce(std::span<std::int32_t>(of_half));
  second.wait();
  first.wait();
  std::int32_t expected = 0;
  for (int each = rank % 2; each < size; each += 2) expected += each;
  require(of_half[0] == expected, "a sub-group reduces over its own ranks only");
  require(of_all[0] == size * (size - 1) / 2, "the parent still reduces over all");

  const std::optional<C> rest = communicator.split(rank == size - 1 ? -1 : 0, 0, "rest");
  require(rest.has_value() == (rank != size - 1), "a negative color belongs to no group");
  if (rest) require(rest->size() == size - 1 && rest->rank() == rank, "equal keys keep the order of ranks");
}

/// All collectives over elements of `T`, for every count up to `largest`.
template <class T, comm::Communicator C>
void check_collectives(C& communicator, Index largest = conformance_counts.back()) {
  for (const Index count : conformance_counts) {
    if (count > largest) break;
    check_all_reduce<T>(communicator, count);
    check_reduce_scatter<T>(communicator, count);
    check_all_gather<T>(communicator, count);
    check_broadcast<T>(communicator, count);
    check_all_to_all<T>(communicator, count);
    check_messages<T>(communicator, count);
  }
}

/// The whole suite. Counts above 1000 are tried with float and bfloat16 only.
template <comm::Communicator C>
void check_communicator(C& communicator, Index largest = conformance_counts.back()) {
  require(communicator.rank() >= 0 && communicator.rank() < communicator.size(), "a rank lies in [0, size)");
  check_collectives<float>(communicator, largest);
  check_collectives<bfloat16>(communicator, largest);
  check_collectives<float16>(communicator, std::min<Index>(largest, 1000));
  check_collectives<double>(communicator, std::min<Index>(largest, 1000));
  check_collectives<std::int32_t>(communicator, std::min<Index>(largest, 1000));
  communicator.barrier().wait();
  check_split(communicator);
  check_mismatches(communicator);
}

}  // namespace dtrain::testing
