// The element types of tensors: float, double, bfloat16 and float16.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "dtrain/core/float16.hpp"

namespace dtrain {

/// Sizes, counts and offsets. Signed, so that differences are safe.
using Index = std::int64_t;

/// The upper half of a float: 8 exponent bits, 7 fraction bits. Conversions round to nearest, ties to even.
class bfloat16 {
 public:
  constexpr bfloat16() = default;
  constexpr explicit(false) bfloat16(float value) : bits_(round(value)) {}
  constexpr explicit(false) operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 value;
    value.bits_ = bits;
    return value;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const { return bits_; }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t quiet = (bits >> 16) | 0x0040u;  // the sign is kept
    const std::uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<std::uint16_t>(is_nan ? quiet : nearest);  // a choice of two values: loops become SIMD code
  }

  std::uint16_t bits_ = 0;
};

static_assert(sizeof(bfloat16) == 2);

/// An element type of tensors.
template <class T>
concept Scalar =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> || std::same_as<T, float16>;

/// The type sums over elements of `T` are kept in: float for the 16-bit types, the type itself otherwise.
template <Scalar T>
using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;

namespace detail {
template <class T>
struct ScalarName;
template <>
struct ScalarName<float> {
  static constexpr std::string_view value = "float";
};
template <>
struct ScalarName<double> {
  static constexpr std::string_view value = "double";
};
template <>
struct ScalarName<bfloat16> {
  static constexpr std::string_view value = "bfloat16";
};
template <>
struct ScalarName<float16> {
  static constexpr std::string_view value = "float16";
};
template <>
struct ScalarName<std::int32_t> {
  static constexpr std::string_view value = "int32";
};
template <>
struct ScalarName<std::int64_t> {
  static constexpr std::string_view value = "int64";
};
template <>
struct ScalarName<std::uint8_t> {
  static constexpr std::string_view value = "uint8";
};
}  // namespace detail

/// The name of an element type, as errors and reports print it. Unnamed types are "bytes".
template <class T>
constexpr std::string_view scalar_name() {
  if constexpr (requires { detail::ScalarName<T>::value; })
    return detail::ScalarName<T>::value;
  else
    return "bytes";
}

}  // namespace dtrain
