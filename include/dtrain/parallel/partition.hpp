// Cuts a sequence of units into pipeline stages so that the most expensive stage is as cheap as possible.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::parallel {

/// Why a partition could not be made.
enum class PartitionFailure : unsigned char {
  none,
  no_stages,       // fewer than one stage was asked for
  too_few_pieces,  // more stages than pieces between the allowed cuts
  bad_cost         // a cost is negative or no number
};

/// The outcome of `partition`: for each stage its half-open range of units.
struct Partition {
  PartitionFailure failure = PartitionFailure::none;
  int stages = 0;
  /// Number of pieces that the allowed cuts leave: the most stages there can be.
  int pieces = 0;
  /// Index of the unit with a bad cost.
  int unit = 0;
  /// Cost of the most expensive stage.
  double largest = 0;
  std::vector<Range> ranges;

  [[nodiscard]] constexpr bool found() const { return failure == PartitionFailure::none; }
};

namespace detail {

// Pieces are what lies between two allowed cuts; `ends[i]` is one past the last unit of piece i, `sums[i]` the cost of
// all pieces before piece i.
struct Pieces {
  std::vector<Index> ends;
  std::vector<double> sums{0.0};
};

// rest[(k - 1) * (n + 1) + i]: the smallest possible cost of the most expensive of k stages made of the pieces from i
// on.
//   rest(1, i) = sum(i, n),  rest(k, i) = min over c of max(sum(i, c), rest(k - 1, c)),  i < c <= n - k + 1
// In c, sum(i, c) rises and rest(k - 1, c) falls, and where they cross only moves right as i does, so that one pointer
// per k finds all minima in linear time.
constexpr std::vector<double> least_costs(const std::vector<double>& sums, int stages) {
  const int n = static_cast<int>(sums.size()) - 1;
  const double* const sum = sums.data();
  std::vector<double> table(static_cast<std::size_t>(stages) * sums.size(), std::numeric_limits<double>::infinity());
  for (int i = 0; i <= n; ++i) table[static_cast<std::size_t>(i)] = sum[n] - sum[i];
  for (int k = 2; k <= stages; ++k) {
    const double* const before = table.data() + (k - 2) * (n + 1);
    double* const now = table.data() + (k - 1) * (n + 1);
    int cut = 1;
    for (int i = 0; i <= n - k; ++i) {
      if (cut <= i) cut = i + 1;
      while (cut < n - k + 1 && sum[cut] - sum[i] < before[cut]) ++cut;
      const double here = sum[cut] - sum[i] > before[cut] ? sum[cut] - sum[i] : before[cut];
      now[i] = here;
      if (cut > i + 1 && before[cut - 1] < here) {
        const double one_less = sum[cut - 1] - sum[i];
        now[i] = one_less > before[cut - 1] ? one_less : before[cut - 1];
      }
    }
  }
  return table;
}

}  // namespace detail

/// Cuts units 0 .. costs.size()-1 into `stages` contiguous, non-empty ranges. The cost of a range is the sum of its
/// units' costs; the largest is as small as any partition can make it. A cut is allowed after unit i where
/// `cuttable[i]` is true (the last entry says nothing). `cuttable` holds one entry per unit.
///
/// Among the partitions with that largest cost, each stage in turn takes as much as fits its equal share of what is
/// left, but no more: what cannot be shared evenly goes to later stages, which hold fewer micro-batches in flight.
/// The result depends on the arguments alone. Costs linear time in units x stages; 100 units on 8 stages stay far below
/// the step limits of constant evaluation.
constexpr Partition partition(std::span<const double> costs, std::span<const bool> cuttable, int stages) {
  Partition result;
  result.stages = stages;
  if (stages < 1) {
    result.failure = PartitionFailure::no_stages;
    return result;
  }
  detail::Pieces pieces;
  double sum = 0;
  for (std::size_t unit = 0; unit < costs.size(); ++unit) {
    if (!(costs[unit] >= 0) || costs[unit] == std::numeric_limits<double>::infinity()) {
      result.failure = PartitionFailure::bad_cost;
      result.unit = static_cast<int>(unit);
      return result;
    }
    sum += costs[unit];
    if (unit + 1 < costs.size() && !cuttable[unit]) continue;
    pieces.ends.push_back(static_cast<Index>(unit) + 1);
    pieces.sums.push_back(sum);
  }
  const int n = static_cast<int>(pieces.ends.size());
  result.pieces = n;
  if (n < stages) {
    result.failure = PartitionFailure::too_few_pieces;
    return result;
  }
  const std::vector<double> rest = detail::least_costs(pieces.sums, stages);
  const double* const sums = pieces.sums.data();
  result.largest = rest[static_cast<std::size_t>((stages - 1) * (n + 1))];
  int begin = 0;
  for (int left = stages; left > 0; --left) {
    const double* const after = left > 1 ? rest.data() + (left - 2) * (n + 1) : nullptr;
    int cut = left > 1 ? begin + 1 : n;
    while (left > 1 && after[cut] > result.largest) ++cut;  // the later stages could not keep to the largest cost
    const double share = (sums[n] - sums[begin]) / left;
    while (left > 1 && cut + 1 <= n - left + 1 && sums[cut + 1] - sums[begin] <= share) ++cut;
    result.ranges.push_back({begin == 0 ? 0 : pieces.ends[static_cast<std::size_t>(begin) - 1],
                             pieces.ends[static_cast<std::size_t>(cut) - 1]});
    begin = cut;
  }
  return result;
}

/// `partition` with every cut allowed.
constexpr Partition partition(std::span<const double> costs, int stages) {
  // An array, since a vector<bool> is no span of bool.
  struct Everywhere {
    explicit constexpr Everywhere(std::size_t size) : flags(new bool[size]), count(size) {
      for (std::size_t i = 0; i < size; ++i) flags[i] = true;
    }
    Everywhere(const Everywhere&) = delete;
    Everywhere& operator=(const Everywhere&) = delete;
    constexpr ~Everywhere() { delete[] flags; }
    bool* flags;
    std::size_t count;
  };
  const Everywhere everywhere(costs.size());
  return partition(costs, std::span<const bool>(everywhere.flags, everywhere.count), stages);
}

/// The ranges of a partition as an array that a constexpr variable can hold. The partition must have been found.
template <std::size_t Stages>
constexpr std::array<Range, Stages> ranges_of(const Partition& partition) {
  std::array<Range, Stages> ranges{};
  for (std::size_t stage = 0; stage < Stages; ++stage) ranges[stage] = partition.ranges[stage];
  return ranges;
}

/// The sentence of a partition that was not found; `who` names the model.
[[gnu::cold]] inline std::string describe(const Partition& partition, std::string_view who) {
  switch (partition.failure) {
    case PartitionFailure::no_stages:
      return concatenate("dtrain: ", who, " cannot be cut into ", partition.stages, " stages; ask for at least one");
    case PartitionFailure::too_few_pieces:
      return concatenate("dtrain: ", who, " cannot be cut into ", partition.stages, " stages: it can be cut into ",
                         partition.pieces, " at most; use fewer stages or more layers");
    case PartitionFailure::bad_cost:
      return concatenate("dtrain: ", who, " cannot be cut into stages: the cost of unit ", partition.unit,
                         " is negative or no finite number");
    default:
      return concatenate("dtrain: ", who, " is cut into ", partition.stages, " stages");
  }
}

}  // namespace dtrain::parallel
