#include "dtrain/comm/reduction.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace dt = dtrain;
using dt::comm::Reduction;

namespace {

template <class T>
std::vector<T> reduce(const std::vector<std::vector<T>>& sources, Reduction reduction) {
  std::vector<T> result(sources[0].size());
  std::vector<const std::byte*> inputs;
  for (const auto& source : sources) inputs.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<std::byte*> outputs{reinterpret_cast<std::byte*>(result.data())};
  dt::comm::reduce_elements<T>(inputs, 0, outputs, 0, static_cast<dt::Index>(result.size()), reduction);
  return result;
}

}  // namespace

// fault D8
TEST_CASE("512 ones in bfloat16 make 512") {
  const std::vector<std::vector<dt::bfloat16>> ones(512, std::vector<dt::bfloat16>(1, 1.0f));
  CHECK(static_cast<float>(reduce(ones, Reduction::sum)[0]) == 512.0f);
  std::vector<std::vector<dt::bfloat16>> mixed(8, std::vector<dt::bfloat16>(1, 1.0f));
  mixed[0][0] = 256.0f;
  CHECK(static_cast<float>(reduce(mixed, Reduction::sum)[0]) == 264.0f);
}

TEST_CASE("every length, also those that end within a block") {
  for (const std::size_t length : {0u, 1u, 511u, 512u, 513u, 1025u}) {
    std::vector<std::vector<std::int32_t>> sources(3, std::vector<std::int32_t>(length));
    for (std::size_t i = 0; i < length; ++i)
      for (std::size_t rank = 0; rank < 3; ++rank) sources[rank][i] = static_cast<std::int32_t>(i * (rank + 1));
    const auto sum = reduce(sources, Reduction::sum);
    for (std::size_t i = 0; i < length; ++i) CHECK(sum[i] == static_cast<std::int32_t>(6 * i));
  }
}

TEST_CASE("a NaN survives every reduction, wherever it stands") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::sum, Reduction::product, Reduction::minimum, Reduction::maximum})
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<std::vector<float>> sources{{1.0f}, {2.0f}, {3.0f}};
      sources[place][0] = nan;
      CHECK(std::isnan(reduce(sources, reduction)[0]));
    }
}

TEST_CASE("integers of every width, signed and unsigned; overflow wraps") {
  CHECK(reduce<std::uint64_t>({{1ull << 63}, {3}}, Reduction::sum)[0] == (1ull << 63) + 3);
  CHECK(reduce<std::int32_t>({{std::numeric_limits<std::int32_t>::max()}, {1}}, Reduction::sum)[0] ==
        std::numeric_limits<std::int32_t>::min());
  CHECK(reduce<std::uint16_t>({{0xffff}, {0xffff}}, Reduction::product)[0] == 1);
  CHECK(reduce<std::int8_t>({{-3}, {4}}, Reduction::product)[0] == -12);
  CHECK(reduce<std::int64_t>({{-3}, {4}, {-9}}, Reduction::minimum)[0] == -9);
  CHECK(reduce<std::uint8_t>({{3}, {200}, {7}}, Reduction::maximum)[0] == 200);
}

TEST_CASE("offsets, several destinations, and a destination that is a source") {
  std::vector<float> a{1, 2, 3, 4};
  std::vector<float> b{10, 20, 30, 40};
  const std::vector<const std::byte*> inputs{reinterpret_cast<std::byte*>(a.data()),
                                             reinterpret_cast<std::byte*>(b.data())};
  const std::vector<std::byte*> outputs{reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())};
  dt::comm::reduce_elements<float>(inputs, 1, outputs, 1, 2, Reduction::sum);
  CHECK(a == std::vector<float>{1, 22, 33, 4});
  CHECK(b == std::vector<float>{10, 22, 33, 40});
}
