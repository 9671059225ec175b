// What a rank can see to be wrong with its own call, before any other rank is asked.
#pragma once

#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::comm {

// Each check returns the end of a sentence that begins with the call, or an empty string if all is well.

namespace detail {

/// Elements before the shard of `rank`.
inline Index shard_begin(std::span<const Index> counts, int rank) {
  const auto before = counts.first(static_cast<std::size_t>(rank));
  return std::accumulate(before.begin(), before.end(), Index{0});
}

inline std::string count_list_fault(std::span<const Index> counts, int size) {
  if (counts.size() != static_cast<std::size_t>(size))
    return concatenate("was given counts for ", counts.size(), " ranks, but there are ", size);
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    if (counts[rank] < 0) return concatenate("was given the negative count ", counts[rank], " for rank ", rank);
  return {};
}

}  // namespace detail

/// For reduce_scatter and all_gather: do the shards add up to the whole and does this rank's shard have its size?
inline std::string shard_fault(std::size_t whole, std::size_t shard, std::span<const Index> counts, int rank,
                               int size) {
  if (std::string fault = detail::count_list_fault(counts, size); !fault.empty()) return fault;
  const Index sum = detail::shard_begin(counts, size);
  if (sum != static_cast<Index>(whole))
    return concatenate("was given shards that add up to ", sum, " elements for a whole of ", whole);
  const Index own = counts[static_cast<std::size_t>(rank)];
  if (own != static_cast<Index>(shard))
    return concatenate("was given ", shard, " elements for its own shard, which counts ", own);
  return {};
}

/// The same for equal shards.
inline std::string even_shard_fault(std::size_t whole, std::size_t shard, int size) {
  if (whole != shard * static_cast<std::size_t>(size))
    return concatenate("was given a whole of ", whole, " elements, which is not ", size, " shards of ", shard,
                       "; give the counts of uneven shards");
  return {};
}

/// For all_to_all: do the blocks add up to the buffers?
inline std::string block_fault(std::size_t input, std::size_t output, std::span<const Index> send_counts,
                               std::span<const Index> receive_counts, int size) {
  if (std::string fault = detail::count_list_fault(send_counts, size); !fault.empty()) return fault;
  if (std::string fault = detail::count_list_fault(receive_counts, size); !fault.empty()) return fault;
  const Index sent = detail::shard_begin(send_counts, size);
  const Index received = detail::shard_begin(receive_counts, size);
  if (sent != static_cast<Index>(input))
    return concatenate("was given send counts that add up to ", sent, " for an input of ", input, " elements");
  if (received != static_cast<Index>(output))
    return concatenate("was given receive counts that add up to ", received, " for an output of ", output, " elements");
  return {};
}

/// The same for equal blocks.
inline std::string even_block_fault(std::size_t input, std::size_t output, int size) {
  if (input != output || input % static_cast<std::size_t>(size) != 0)
    return concatenate("was given an input of ", input, " and an output of ", output,
                       " elements; equal blocks need both the same and a multiple of ", size);
  return {};
}

/// Does memory of `whole` overlap `part` anywhere but at `part`'s own place, `offset` bytes in?
inline std::string overlap_fault(std::span<const std::byte> whole, std::span<const std::byte> part,
                                 std::size_t offset) {
  if (whole.empty() || part.empty() || part.data() == whole.data() + offset) return {};
  const std::less<const std::byte*> before;
  if (before(part.data(), whole.data() + whole.size()) && before(whole.data(), part.data() + part.size()))
    return "was given input and output that overlap, but not at the rank's own shard";
  return {};
}

/// Is `rank` one of `size` ranks?
inline std::string peer_fault(int rank, int size) {
  if (rank < 0 || rank >= size) return concatenate("names rank ", rank, ", but there are only ranks 0 to ", size - 1);
  return {};
}

}  // namespace dtrain::comm
