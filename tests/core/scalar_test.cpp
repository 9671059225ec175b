// bfloat16: every bit pattern, every rounding case; the names and accumulators of the element types.
#include "dtrain/core/scalar.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace {

float from_float_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint16_t rounded(std::uint32_t float_bits) { return dtrain::bfloat16(from_float_bits(float_bits)).bits(); }

// Round to nearest, ties to even, by comparing distances in double: a second way, without bit tricks. For finite
// values.
std::uint16_t nearest_by_distance(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto below = static_cast<std::uint16_t>(bits >> 16);  // towards zero
  const auto above = static_cast<std::uint16_t>(below + 1);   // away from zero
  const auto magnitude = [](std::uint16_t half) {
    // Beyond the largest finite value, the grid goes on with the value 2^128 that stands for infinity.
    if ((half & 0x7fffu) == 0x7f80u) return std::ldexp(1.0, 128);
    return std::abs(static_cast<double>(from_float_bits(std::uint32_t{half} << 16)));
  };
  const double down = std::abs(static_cast<double>(value)) - magnitude(below);
  const double up = magnitude(above) - std::abs(static_cast<double>(value));
  if (down != up) return down < up ? below : above;
  return below % 2 == 0 ? below : above;
}

}  // namespace

TEST_CASE("all 65536 patterns survive the way to float and back") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    CAPTURE(bits);
    const dtrain::bfloat16 value = dtrain::bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const auto wide = static_cast<float>(value);
    REQUIRE(std::bit_cast<std::uint32_t>(wide) == bits << 16);
    const bool is_nan = (bits & 0x7fffu) > 0x7f80u;
    REQUIRE(std::isnan(wide) == is_nan);
    // A signalling NaN becomes quiet; everything else comes back as it was.
    REQUIRE(dtrain::bfloat16(wide).bits() == (is_nan ? bits | 0x0040u : bits));
  }
}

TEST_CASE("rounding goes to the nearest, and to even when both are as near") {
  CHECK(rounded(0x3f800000u) == 0x3f80u);  // 1
  CHECK(rounded(0x3f807fffu) == 0x3f80u);  // just below the tie
  CHECK(rounded(0x3f808000u) == 0x3f80u);  // tie: 0x3f80 is even
  CHECK(rounded(0x3f808001u) == 0x3f81u);  // just above the tie
  CHECK(rounded(0x3f818000u) == 0x3f82u);  // tie: 0x3f81 is odd
  CHECK(rounded(0x3fff8000u) == 0x4000u);  // a carry into the exponent
  CHECK(rounded(0xbf818000u) == 0xbf82u);  // the sign changes nothing
  CHECK(static_cast<float>(dtrain::bfloat16(1.0f / 3.0f)) == 0.333984375f);
}

TEST_CASE("rounding agrees with the distances, at every pattern and around every tie") {
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    if ((upper & 0x7f80u) == 0x7f80u) continue;  // infinity and NaN have no neighbours
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = upper << 16 | lower;
      CAPTURE(bits);
      REQUIRE(rounded(bits) == nearest_by_distance(from_float_bits(bits)));
    }
  }
}

TEST_CASE("zeros, infinities, the largest and the smallest values") {
  CHECK(rounded(0x00000000u) == 0x0000u);
  CHECK(rounded(0x80000000u) == 0x8000u);
  CHECK(rounded(0x7f800000u) == 0x7f80u);
  CHECK(rounded(0xff800000u) == 0xff80u);
  CHECK(rounded(0x7f7f0000u) == 0x7f7fu);  // the largest finite bfloat16
  CHECK(rounded(0x7f7f7fffu) == 0x7f7fu);
  CHECK(rounded(0x7f7fffffu) == 0x7f80u);  // the largest float is nearer to 2^128
  CHECK(rounded(0xff7fffffu) == 0xff80u);
  CHECK(rounded(0x00000001u) == 0x0000u);  // the smallest denormal float is below half the smallest bfloat16
  CHECK(rounded(0x00008000u) == 0x0000u);  // half of it: a tie, to even
  CHECK(rounded(0x00008001u) == 0x0001u);
  CHECK(rounded(0x007fffffu) == 0x0080u);  // a denormal that rounds up to the smallest normal
}

TEST_CASE("NaN stays NaN, with its sign, whatever its payload") {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f80ffffu}) {
    CAPTURE(bits);
    CHECK(std::isnan(static_cast<float>(dtrain::bfloat16(from_float_bits(bits)))));
    CHECK((rounded(bits) & 0x8000u) == (bits >> 31 << 15));
    CHECK((rounded(bits) & 0x0040u) != 0);
  }
}

TEST_CASE("conversions are constant expressions, and zero is the default") {
  static_assert(dtrain::bfloat16{}.bits() == 0);
  static_assert(static_cast<float>(dtrain::bfloat16(-2.5f)) == -2.5f);
  static_assert(dtrain::bfloat16(1.0f) + dtrain::bfloat16(2.0f) == 3.0f);
}

TEST_CASE("element types have names and accumulators") {
  static_assert(dtrain::Scalar<float> && dtrain::Scalar<double> && dtrain::Scalar<dtrain::bfloat16>);
  static_assert(!dtrain::Scalar<int> && !dtrain::Scalar<long double>);
  static_assert(std::is_same_v<dtrain::Accumulator<dtrain::bfloat16>, float>);
  static_assert(std::is_same_v<dtrain::Accumulator<float>, float>);
  static_assert(std::is_same_v<dtrain::Accumulator<double>, double>);
  CHECK(std::string(dtrain::scalar_name<float>()) == "float");
  CHECK(std::string(dtrain::scalar_name<double>()) == "double");
  CHECK(std::string(dtrain::scalar_name<dtrain::bfloat16>()) == "bfloat16");
  CHECK(std::string(dtrain::scalar_name<std::int64_t>()) == "int64");
  CHECK(std::string(dtrain::scalar_name<std::int32_t>()) == "int32");
  CHECK(std::string(dtrain::scalar_name<std::uint8_t>()) == "uint8");
  struct Unnamed {};
  CHECK(std::string(dtrain::scalar_name<Unnamed>()) == "bytes");
}
