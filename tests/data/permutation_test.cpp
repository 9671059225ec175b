#include "dtrain/data/permutation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

using dtrain::Index;
using dtrain::data::Permutation;

namespace {

std::vector<Index> order(std::uint64_t seed, Index epoch, Index size) {
  const Permutation permutation(seed, epoch, size);
  std::vector<Index> result;
  for (Index i = 0; i < size; ++i) result.push_back(permutation(i));
  return result;
}

}  // namespace

TEST_CASE("every size is permuted: each element once, none outside") {
  std::vector<Index> sizes{255, 256, 257, 1000, 4096, 4097, 65537};
  for (Index size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const Index size : sizes) {
    std::vector<Index> seen = order(7, 3, size);
    std::sort(seen.begin(), seen.end());
    bool complete = true;
    for (Index i = 0; i < size; ++i) complete = complete && seen[static_cast<std::size_t>(i)] == i;
    CHECK_MESSAGE(complete, size);
  }
}

TEST_CASE("the order depends on seed and epoch, and on nothing else") {
  CHECK(order(1, 0, 100) == order(1, 0, 100));
  CHECK(order(1, 0, 100) != order(1, 1, 100));
  CHECK(order(1, 0, 100) != order(2, 0, 100));
  // Known values: a change of the order would break the resumption of older runs.
  static_assert(Permutation(0, 0, 1)(0) == 0);
  CHECK(order(42, 0, 10) == std::vector<Index>{6, 9, 2, 0, 3, 4, 1, 5, 8, 7});
}

TEST_CASE("all orders of three elements occur about equally often") {
  std::array<int, 27> count{};
  for (Index epoch = 0; epoch < 6000; ++epoch) {
    const auto o = order(5, epoch, 3);
    ++count[static_cast<std::size_t>(o[0] * 9 + o[1] * 3 + o[2])];
  }
  for (const int n : count) CHECK((n == 0 || (n > 850 && n < 1150)));  // 1000 expected, deviation 29
  CHECK(std::count(count.begin(), count.end(), 0) == 21);
}

TEST_CASE("neighbours are parted: the mean distance is that of a random order") {
  constexpr Index size = 30000;
  const Permutation permutation(11, 0, size);
  double distance = 0;
  Index fixed = 0;
  for (Index i = 0; i + 1 < size; ++i) {
    distance += static_cast<double>(std::abs(permutation(i) - permutation(i + 1)));
    fixed += permutation(i) == i;
  }
  CHECK(distance / size == doctest::Approx(size / 3.0).epsilon(0.02));
  CHECK(fixed <= 8);  // Poisson with mean 1
}
