// Exponential, logistic, tanh, erf and square root as branch-free arithmetic, so that compilers turn loops over them
// into SIMD code.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "dtrain/core/scalar.hpp"

namespace dtrain::ops {

namespace detail {

/// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
template <class... Coefficients>
[[gnu::always_inline]] constexpr float polynomial(float x, float first, Coefficients... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return first + x * polynomial(x, rest...);
}

// Limits and selections are made on the bits, as integers: GCC turns comparisons of floats into branches, which keep
// a loop from being vectorised. The bits of floats of one sign are ordered like their magnitudes, NaN above infinity.
inline constexpr std::uint32_t sign_bit = 0x80000000u;

[[gnu::always_inline]] inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
[[gnu::always_inline]] inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// `low` if |x| < limit, else `high`.
[[gnu::always_inline]] inline float below(float x, float limit, float low, float high) {
  const std::uint32_t is_low = 0u - static_cast<std::uint32_t>((bits_of(x) & ~sign_bit) < bits_of(limit));
  return float_of((bits_of(low) & is_low) | (bits_of(high) & ~is_low));
}

/// `result`, or NaN if x is NaN.
[[gnu::always_inline]] inline float or_nan(float x, float result) {
  const std::uint32_t is_nan = 0u - static_cast<std::uint32_t>((bits_of(x) & ~sign_bit) > 0x7f800000u);
  return float_of(bits_of(result) | (is_nan & 0x7fc00000u));
}

/// x with its magnitude limited; NaN becomes the limit.
[[gnu::always_inline]] inline float limit_magnitude(float x, float limit) {
  return float_of(std::min(bits_of(x) & ~sign_bit, bits_of(limit)) | (bits_of(x) & sign_bit));
}

}  // namespace detail

/// e^x. float: within 2 units in the last place; 0 below -104, infinity above 88.73, NaN for NaN. The polynomial is a
/// Chebyshev fit of (e^r - 1 - r) / r^2 over |r| <= ln(2)/2, after x = n ln(2) + r (Cody and Waite's reduction).
[[gnu::always_inline]] inline float exp_of(float x) {
  // Beyond 104 the result is 0 or infinity like that of 104.
  const float clamped = detail::limit_magnitude(x, 104.0f);
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  constexpr float shifter = 12582912.0f;
  const float shifted = clamped * 1.44269504f + shifter;
  const float n = shifted - shifter;
  const float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
  const float q = detail::polynomial(r, 0.5f, 0.166665733f, 0.0416664556f, 0.00836377684f, 0.00139345450f);
  const float mantissa = 1.0f + (r + r * r * q);
  // 2^n in two factors: 2^128 is no float, and below 2^-126 the product must round once, at the end.
  const std::uint32_t whole = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(shifter);
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1);
  const float scale1 = std::bit_cast<float>((half + 127u) << 23);
  const float scale2 = std::bit_cast<float>((whole - half + 127u) << 23);
  return detail::or_nan(x, mantissa * scale1 * scale2);
}
inline double exp_of(double x) { return std::exp(x); }

/// 1 / (1 + e^-x).
[[gnu::always_inline]] inline float logistic_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
inline double logistic_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// tanh(x). float: an odd polynomial (Chebyshev fit) below 0.65, else 1 - 2 / (e^2x + 1).
[[gnu::always_inline]] inline float tanh_of(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  const float near = magnitude + magnitude * square *
                                     detail::polynomial(square, -0.333333343f, 0.133332923f, -0.0539565571f,
                                                        0.0217475500f, -0.00827612635f, 0.00221836288f);
  const float far = 1.0f - 2.0f / (exp_of(2.0f * magnitude) + 1.0f);
  return std::copysign(detail::below(x, 0.65f, near, far), x);
}
inline double tanh_of(double x) { return std::tanh(x); }

/// erf(x). float: an odd polynomial below 1, else 1 - exp(p(|x|)) where p is a Chebyshev fit of log(erfc) over
/// [1, 4.1]; beyond 4.1 erf rounds to 1.
[[gnu::always_inline]] inline float erf_of(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  const float near = x * detail::polynomial(square, 1.12837923f, -0.376126379f, 0.112837829f, -0.0268654376f,
                                            0.00522105349f, -0.000848439639f, 0.000112682537f, -9.67359119e-06f);
  const float clamped = detail::limit_magnitude(magnitude, 4.1f);
  const float log_erfc =
      detail::polynomial(clamped, 0.000280810462f, -1.13007486f, -0.632096171f, -0.109826066f, 0.0262767188f,
                         -0.00470867939f, 0.000585913309f, -4.47628627e-05f, 1.57148213e-06f);
  const float far = std::copysign(1.0f - exp_of(log_erfc), x);
  return detail::or_nan(x, detail::below(x, 1.0f, near, far));
}
inline double erf_of(double x) { return std::erf(x); }

/// The square root of x >= 0, normal or 0; within 1 unit in the last place. std::sqrt may set errno, for which
/// compilers keep its loops scalar. Two Newton steps for 1/sqrt(x) from a guess by the exponent's bits, then one for
/// sqrt(x).
[[gnu::always_inline]] inline float sqrt_of(float x) {
  float inverse = detail::float_of(0x5f3759dfu - (detail::bits_of(x) >> 1));
  inverse = inverse * (1.5f - 0.5f * x * inverse * inverse);
  inverse = inverse * (1.5f - 0.5f * x * inverse * inverse);
  const float root = x * inverse;
  return root + 0.5f * inverse * (x - root * root);
}
inline double sqrt_of(double x) { return std::sqrt(x); }

}  // namespace dtrain::ops
