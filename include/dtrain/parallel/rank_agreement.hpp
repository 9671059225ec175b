// Refusals of what every rank must be given alike: seeds and batch shapes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/batch_shape.hpp"

namespace dtrain::parallel {

/// Collective. With seeds of their own, ranks would start from different copies of the weights and train them silently
/// apart. Throws ConfigurationError on every rank when seeds differ.
template <class C>
[[gnu::cold]] void verify_same_seed(C& world, std::uint64_t seed) {
  std::vector<std::uint64_t> seeds(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::uint64_t>(&seed, 1), std::span(seeds)).wait();
  for (std::size_t rank = 1; rank < seeds.size(); ++rank)
    if (seeds[rank] != seeds[0])
      throw ConfigurationError(concatenate("dtrain: the seed is ", seeds[0], " on rank 0 and ", seeds[rank],
                                           " on rank ", rank, "; give all ranks the same."));
}

/// Collective. Throws ConfigurationError on every rank when batch shapes differ.
template <class C>
[[gnu::cold]] void verify_same_shape(C& world, const BatchShape& shape) {
  const std::array<Index, 3> mine{shape.samples, shape.context, shape.micro_batches};
  std::vector<Index> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const Index>(mine), std::span(all)).wait();
  for (std::size_t rank = 1; 3 * rank < all.size(); ++rank)
    if (!std::equal(all.begin(), all.begin() + 3, all.begin() + static_cast<std::ptrdiff_t>(3 * rank)))
      throw ConfigurationError(concatenate("dtrain: rank 0 was given a batch of ", all[0], " samples of ", all[1],
                                           " tokens in ", all[2], " micro-batches, rank ", rank, " one of ",
                                           all[3 * rank], " samples of ", all[3 * rank + 1], " tokens in ",
                                           all[3 * rank + 2], " micro-batches; give all ranks the same."));
}

}  // namespace dtrain::parallel
