// Philox 4x32-10 against the known answers published with Random123, and the streams built on it.
#include "dtrain/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

using dtrain::philox4x32;
using dtrain::RandomStream;
using Words = std::array<std::uint32_t, 4>;

TEST_CASE("philox4x32 with 10 rounds gives the published answers") {
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  constexpr std::uint32_t ones = 0xffffffffu;
  static_assert(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
                Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  static_assert(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
                Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
  // The same at run time, since a compiler evaluates constants by other code than it generates.
  volatile std::uint32_t zero = 0;
  CHECK(philox4x32({zero, zero, zero, zero}, {zero, zero}) ==
        Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
}

TEST_CASE("hash_name is FNV-1a with 64 bits") {
  static_assert(dtrain::hash_name("") == 0xcbf29ce484222325u);
  static_assert(dtrain::hash_name("a") == 0xaf63dc4c8601ec8cu);
  static_assert(dtrain::hash_name("foobar") == 0x85944171f73967e8u);
  // A name hashed in two pieces is the name hashed whole, so prefixes can be hashed once.
  static_assert(dtrain::hash_name("bar", dtrain::hash_name("foo")) == dtrain::hash_name("foobar"));
  // Bytes above 127 count as unsigned.
  static_assert(dtrain::hash_name("\xff") == (0xcbf29ce484222325u ^ 0xffu) * 0x100000001b3u);
}

TEST_CASE("a stream is a function of the index, not of the order of the draws") {
  const RandomStream stream(42, dtrain::hash_name("block.3.dropout"), 7);
  std::vector<std::uint32_t> forwards;
  for (std::uint64_t i = 0; i < 64; ++i) forwards.push_back(stream.bits(i));
  const RandomStream again(42, dtrain::hash_name("block.3.dropout"), 7);
  for (std::uint64_t i = 64; i-- > 0;) CHECK(again.bits(i) == forwards[i]);
  CHECK(stream.block(3) == Words{forwards[12], forwards[13], forwards[14], forwards[15]});
}

TEST_CASE("seed, name, step and index each give other numbers") {
  const auto first = [](std::uint64_t seed, std::uint64_t name, std::uint64_t step, std::uint64_t block) {
    return RandomStream(seed, name, step).block(block);
  };
  std::set<Words> seen;
  std::size_t drawn = 0;
  // Both halves of each 64-bit number must count.
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (const std::uint64_t name : {0ull, 1ull, 1ull << 32})
      for (const std::uint64_t step : {0ull, 1ull, 1ull << 32})
        for (const std::uint64_t block : {0ull, 1ull, 1ull << 32}) {
          seen.insert(first(seed, name, step, block));
          ++drawn;
        }
  CHECK(seen.size() == drawn);
}

TEST_CASE("uniform lies strictly inside (0, 1), and has the moments of the uniform distribution") {
  const RandomStream stream(1, 2);
  constexpr std::uint64_t count = 200000;
  double sum = 0.0;
  double squares = 0.0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = stream.uniform(i);
    REQUIRE(u > 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard errors: sqrt(1/12/n) for the mean, sqrt(4/45/n) for the mean square.
  CHECK(std::abs(sum / count - 0.5) < 5.0 * std::sqrt(1.0 / 12.0 / count));
  CHECK(std::abs(squares / count - 1.0 / 3.0) < 5.0 * std::sqrt(4.0 / 45.0 / count));
  static_assert(RandomStream(1, 2).uniform(5) == (RandomStream(1, 2).bits(5) + 0.5) / 4294967296.0);
}

TEST_CASE("normal has mean 0, variance 1, kurtosis 3, and neighbours without correlation") {
  const RandomStream stream(3, 4);
  constexpr std::uint64_t count = 200000;
  double sum = 0.0;
  double squares = 0.0;
  double fourths = 0.0;
  double products = 0.0;
  double previous = stream.normal(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const double z = stream.normal(i);
    REQUIRE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    products += z * previous;
    previous = z;
  }
  // Five standard errors: variances of z, z^2, z^4, z z' are 1, 2, 96, 1.
  CHECK(std::abs(sum / count) < 5.0 * std::sqrt(1.0 / count));
  CHECK(std::abs(squares / count - 1.0) < 5.0 * std::sqrt(2.0 / count));
  CHECK(std::abs(fourths / count - 3.0) < 5.0 * std::sqrt(96.0 / count));
  CHECK(std::abs(products / count) < 5.0 * std::sqrt(1.0 / count));
}

TEST_CASE("normal follows Box and Muller from the block's words") {
  const RandomStream stream(5, 6, 7);
  const Words words = stream.block(1);
  const auto unit = [](std::uint32_t word) { return (word + 0.5) / 4294967296.0; };
  const double pi = 3.14159265358979323846;
  const double radius = std::sqrt(-2.0 * std::log(unit(words[2])));
  CHECK(stream.normal(6) == doctest::Approx(radius * std::cos(2.0 * pi * unit(words[3]))).epsilon(1e-14));
  CHECK(stream.normal(7) == doctest::Approx(radius * std::sin(2.0 * pi * unit(words[3]))).epsilon(1e-14));
}
