// The 16-bit floating-point number of IEEE 754, with conversions that compilers turn into SIMD code.
#pragma once

#include <bit>
#include <cstdint>

namespace dtrain {

/// IEEE 754 binary16: 5 exponent bits, 10 fraction bits; the largest number is 65504, the smallest above 0 is 2^-24.
/// Conversions round to nearest, ties to even; from 65520 on to infinity. NaN stays NaN and becomes quiet.
class float16 {
 public:
  constexpr float16() = default;
  constexpr explicit(false) float16(float value) : bits_(round(value)) {}
  constexpr explicit(false) operator float() const {
    const std::uint32_t sign = (std::uint32_t{bits_} & 0x8000u) << 16;
    const std::uint32_t magnitude = (std::uint32_t{bits_} & 0x7fffu) << 13;
    // The fields of a float, with an exponent that is 112 too small: a product by 2^112 is exact, subnormals included.
    const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const std::uint32_t infinite = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(sign | scaled | infinite);
  }

  [[nodiscard]] static constexpr float16 from_bits(std::uint16_t bits) {
    float16 value;
    value.bits_ = bits;
    return value;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const { return bits_; }

 private:
  // Choices between values instead of branches.
  static constexpr std::uint16_t round(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // The carry of the fraction may reach the exponent, and from the largest number infinity.
    const std::uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    // The spacing of floats around 1/2 is 2^-24, that of subnormal numbers: the sum rounds as they must.
    constexpr float half = 0.5f;
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(magnitude < 0x38800000u ? std::bit_cast<float>(magnitude) + half : half) -
        std::bit_cast<std::uint32_t>(half);
    const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
    const std::uint32_t finite = magnitude < 0x38800000u ? small : normal;
    const std::uint32_t beyond = magnitude > 0x7f800000u ? quiet : 0x7c00u;
    return static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000u ? beyond : finite));
  }

  std::uint16_t bits_ = 0;
};

static_assert(sizeof(float16) == 2);

}  // namespace dtrain
