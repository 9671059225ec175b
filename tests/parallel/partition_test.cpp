#include "dtrain/parallel/partition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "dtrain/core/random.hpp"

using dtrain::Range;
using dtrain::parallel::Partition;
using dtrain::parallel::partition;
using dtrain::parallel::PartitionFailure;

namespace {

constexpr std::array<double, 6> equal = {1, 1, 1, 1, 1, 1};

double cost_of(std::span<const double> costs, Range range) {
  double sum = 0;
  for (auto unit = range.begin; unit < range.end; ++unit) sum += costs[static_cast<std::size_t>(unit)];
  return sum;
}

/// The smallest largest cost, by trying every set of cuts.
double exhaustive(const std::vector<double>& costs, std::span<const bool> cuttable, int stages) {
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t, int, double)> cut = [&](std::size_t begin, int left, double largest) {
    for (std::size_t end = begin + 1; end <= costs.size(); ++end) {
      if (end < costs.size() && !cuttable[end - 1]) continue;
      if ((left == 1) != (end == costs.size())) continue;
      const double here = cost_of(costs, {static_cast<dtrain::Index>(begin), static_cast<dtrain::Index>(end)});
      if (left == 1)
        best = std::min(best, std::max(largest, here));
      else
        cut(end, left - 1, std::max(largest, here));
    }
  };
  cut(0, stages, 0);
  return best;
}

void check_shape(const Partition& found, std::span<const double> costs, std::span<const bool> cuttable) {
  dtrain::Index next = 0;
  double largest = 0;
  for (const Range range : found.ranges) {
    CHECK(range.begin == next);
    CHECK(range.size() > 0);
    next = range.end;
    largest = std::max(largest, cost_of(costs, range));
    if (range.end < static_cast<dtrain::Index>(costs.size())) CHECK(cuttable[static_cast<std::size_t>(range.end) - 1]);
  }
  CHECK(next == static_cast<dtrain::Index>(costs.size()));
  CHECK(static_cast<int>(found.ranges.size()) == found.stages);
  CHECK(found.largest == doctest::Approx(largest).epsilon(1e-12));
}

}  // namespace

TEST_CASE("equal units are shared out evenly, the rest to later stages") {
  CHECK(partition(equal, 1).ranges == std::vector<Range>{{0, 6}});
  CHECK(partition(equal, 3).ranges == std::vector<Range>{{0, 2}, {2, 4}, {4, 6}});
  CHECK(partition(equal, 4).ranges == std::vector<Range>{{0, 1}, {1, 2}, {2, 4}, {4, 6}});
  const std::vector<double> nine(9, 1.0);
  CHECK(partition(nine, 4).ranges == std::vector<Range>{{0, 2}, {2, 4}, {4, 6}, {6, 9}});
}

TEST_CASE("the most expensive stage is as cheap as it can be") {
  const std::vector<double> costs = {4, 1, 1, 1, 1, 6};
  const Partition found = partition(costs, 2);
  CHECK(found.ranges == std::vector<Range>{{0, 4}, {4, 6}});
  CHECK(found.largest == 7);
  CHECK(partition(costs, 3).ranges == std::vector<Range>{{0, 1}, {1, 5}, {5, 6}});
}

TEST_CASE("cuts fall where they are allowed") {
  const std::array<bool, 6> pairs = {false, true, false, true, false, true};
  CHECK(partition(equal, pairs, 2).ranges == std::vector<Range>{{0, 2}, {2, 6}});
  CHECK(partition(equal, pairs, 3).ranges == std::vector<Range>{{0, 2}, {2, 4}, {4, 6}});
}

TEST_CASE("every partition is as good as the best of all") {
  const dtrain::RandomStream random(7, dtrain::hash_name("partition"));
  std::uint64_t drawn = 0;
  for (int round = 0; round < 400; ++round) {
    const std::size_t units = 1 + random.bits(drawn++) % 9;
    std::vector<double> costs(units);
    const auto cuttable = std::make_unique<bool[]>(units);
    for (std::size_t unit = 0; unit < units; ++unit) {
      costs[unit] = random.bits(drawn++) % 6;  // zeros and ties among them
      cuttable[unit] = random.bits(drawn++) % 4 != 0;
    }
    const std::span<const bool> cuts(cuttable.get(), units);
    for (int stages = 1; stages <= 6; ++stages) {
      CAPTURE(round);
      CAPTURE(stages);
      const double best = exhaustive(costs, cuts, stages);
      const Partition found = partition(costs, cuts, stages);
      REQUIRE(found.found() == (best != std::numeric_limits<double>::infinity()));
      if (!found.found()) continue;
      CHECK(found.largest == best);  // integers: exact
      check_shape(found, costs, cuts);
      CHECK(partition(costs, cuts, stages).ranges == found.ranges);
    }
  }
}

TEST_CASE("fractions are partitioned without losing a unit to rounding") {
  const dtrain::RandomStream random(9, dtrain::hash_name("fractions"));
  std::uint64_t drawn = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t units = 8 + random.bits(drawn++) % 60;
    std::vector<double> costs(units);
    for (double& cost : costs) cost = random.uniform(drawn++);
    const auto everywhere = std::make_unique<bool[]>(units);
    std::fill_n(everywhere.get(), units, true);
    for (int stages = 1; stages <= 8; ++stages) check_shape(partition(costs, stages), costs, {everywhere.get(), units});
  }
}

TEST_CASE("partitions are constant expressions, a hundred units among them") {
  constexpr auto ranges = dtrain::parallel::ranges_of<4>(partition(equal, 4));
  static_assert(ranges[0] == Range{0, 1} && ranges[3] == Range{4, 6});
  constexpr double largest = [] {
    std::array<double, 100> costs{};
    for (std::size_t unit = 0; unit < costs.size(); ++unit) costs[unit] = 1.0 + static_cast<double>(unit % 3);
    return partition(costs, 8).largest;
  }();
  static_assert(largest >= 25 && largest <= 27);
}

TEST_CASE("what cannot be cut is refused with the numbers") {
  const std::array<bool, 6> one_cut = {false, false, true, false, false, false};
  const Partition few = partition(equal, one_cut, 3);
  CHECK(few.failure == PartitionFailure::too_few_pieces);
  CHECK(few.pieces == 2);
  CHECK(describe(few, "Gpt") ==
        "dtrain: Gpt cannot be cut into 3 stages: it can be cut into 2 at most; use fewer stages or more layers");
  CHECK(partition(equal, 7).failure == PartitionFailure::too_few_pieces);
  CHECK(partition(std::vector<double>{}, 1).failure == PartitionFailure::too_few_pieces);
  CHECK(partition(equal, 0).failure == PartitionFailure::no_stages);
  const Partition bad = partition(std::vector<double>{1, -1, 2}, 2);
  CHECK(bad.failure == PartitionFailure::bad_cost);
  CHECK(describe(bad, "Gpt") ==
        "dtrain: Gpt cannot be cut into stages: the cost of unit 1 is negative or no finite number");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(partition(std::vector<double>{1, 2, nan}, 2).unit == 2);
}
