// float16: every bit pattern against its value in double, every rounding case around every tie.
#include "dtrain/core/float16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dtrain/core/scalar.hpp"

using dtrain::float16;

namespace {

bool is_nan(std::uint32_t half) { return (half & 0x7fffu) > 0x7c00u; }

// The value of a pattern by the definition of its fields; infinity stands for 2^16, the next on the grid.
double value_of(std::uint32_t half) {
  const int exponent = static_cast<int>((half >> 10) & 31u);
  const double fraction = half & 1023u;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

std::uint32_t rounded(float value) { return float16(value).bits(); }

}  // namespace

TEST_CASE("all 65536 patterns have the value that their fields say, and survive the way to float and back") {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    CAPTURE(half);
    const auto wide = static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(half)));
    REQUIRE(std::isnan(wide) == is_nan(half));
    REQUIRE(std::signbit(wide) == (half >= 0x8000u));
    if (is_nan(half)) {
      REQUIRE(rounded(wide) == (half | 0x0200u));
      continue;
    }
    if ((half & 0x7fffu) == 0x7c00u)
      REQUIRE(std::isinf(wide));
    else
      REQUIRE(static_cast<double>(wide) == value_of(half));
    REQUIRE(rounded(wide) == half);
  }
}

TEST_CASE("around every tie, rounding goes to the nearest, and to even when both are as near") {
  for (std::uint32_t half = 0; half < 0x7c00u; ++half) {
    CAPTURE(half);
    // Halfway to the next pattern: one more bit than a float16 holds, so a float holds it.
    const auto tie = static_cast<float>(0.5 * (value_of(half) + value_of(half + 1)));
    const std::uint32_t even = half % 2 == 0 ? half : half + 1;
    REQUIRE(rounded(tie) == even);
    REQUIRE(rounded(std::nextafter(tie, 0.0f)) == half);
    REQUIRE(rounded(std::nextafter(tie, 1e9f)) == half + 1);
    REQUIRE(rounded(-tie) == (even | 0x8000u));
  }
}

TEST_CASE("the smallest, the largest and what lies beyond") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(rounded(0x1p-24f) == 1u);
  CHECK(rounded(0x1p-25f) == 0u);  // a tie, to even
  CHECK(rounded(0x1.000002p-25f) == 1u);
  CHECK(rounded(std::numeric_limits<float>::denorm_min()) == 0u);
  CHECK(rounded(-0.0f) == 0x8000u);
  CHECK(rounded(65504.0f) == 0x7bffu);
  CHECK(rounded(65519.0f) == 0x7bffu);
  CHECK(rounded(65520.0f) == 0x7c00u);
  CHECK(rounded(-1e30f) == 0xfc00u);
  CHECK(rounded(std::numeric_limits<float>::max()) == 0x7c00u);
  CHECK(rounded(infinity) == 0x7c00u);
  CHECK(rounded(-infinity) == 0xfc00u);
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
    const std::uint32_t half = rounded(std::bit_cast<float>(bits));
    CHECK(is_nan(half));
    CHECK((half & 0x8000u) == (bits >> 31 << 15));
    CHECK((half & 0x0200u) != 0);
  }
}

TEST_CASE("conversions are constant expressions, and float16 is an element type") {
  static_assert(float16{}.bits() == 0);
  static_assert(static_cast<float>(float16(-2.5f)) == -2.5f);
  static_assert(float16(0x1p-20f).bits() == 16);
  static_assert(dtrain::Scalar<float16>);
  static_assert(std::is_same_v<dtrain::Accumulator<float16>, float>);
  CHECK(dtrain::scalar_name<float16>() == "float16");
}
