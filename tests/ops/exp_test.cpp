#include "dtrain/ops/host/exp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace dtrain;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The distance of `actual` from `exact` in units in the last place of the float nearest to `exact`.
double ulps(float actual, double exact) {
  const float nearest = static_cast<float>(exact);
  const float next = std::nextafter(std::fabs(nearest), infinity);
  const double unit = static_cast<double>(next) - std::fabs(static_cast<double>(nearest));
  return std::fabs(static_cast<double>(actual) - exact) / unit;
}

/// Calls f for every 997th float of both signs whose magnitude lies below `limit`.
template <class F>
double worst_over_floats(float limit, F error) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(limit); bits += 997)
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const double found = error(std::bit_cast<float>(bits | sign));
      if (!(found <= worst)) worst = found;
    }
  return worst;
}

}  // namespace

TEST_CASE("exp is within 2 units in the last place, subnormal results included") {
  CHECK(worst_over_floats(88.7f, [](float x) { return ulps(ops::exp_of(x), std::exp(static_cast<double>(x))); }) < 2.0);
  CHECK(ulps(ops::exp_of(-100.0f), std::exp(-100.0)) < 1.0);
}

TEST_CASE("exp at the ends of its range") {
  CHECK(ops::exp_of(0.0f) == 1.0f);
  CHECK(ops::exp_of(-infinity) == 0.0f);
  CHECK(ops::exp_of(-104.5f) == 0.0f);
  CHECK(ops::exp_of(-1e30f) == 0.0f);
  CHECK(ops::exp_of(infinity) == infinity);
  CHECK(ops::exp_of(88.73f) == infinity);
  CHECK(ops::exp_of(88.72f) < infinity);
  CHECK(std::isnan(ops::exp_of(std::numeric_limits<float>::quiet_NaN())));
  CHECK(ops::exp_of(1.0) == std::exp(1.0));
}

TEST_CASE("tanh, erf and the logistic function are close over all floats") {
  CHECK(worst_over_floats(30.0f, [](float x) { return ulps(ops::tanh_of(x), std::tanh(static_cast<double>(x))); }) <
        2.5);
  CHECK(worst_over_floats(10.0f, [](float x) { return ulps(ops::erf_of(x), std::erf(static_cast<double>(x))); }) < 2.5);
  CHECK(worst_over_floats(80.0f, [](float x) {
          return ulps(ops::logistic_of(x), 1.0 / (1.0 + std::exp(-static_cast<double>(x))));
        }) < 4.0);
}

TEST_CASE("tanh, erf and the logistic function saturate and pass NaN on") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(ops::tanh_of(infinity) == 1.0f);
  CHECK(ops::tanh_of(-infinity) == -1.0f);
  CHECK(ops::erf_of(infinity) == 1.0f);
  CHECK(ops::erf_of(-infinity) == -1.0f);
  CHECK(ops::logistic_of(infinity) == 1.0f);
  CHECK(ops::logistic_of(-infinity) == 0.0f);
  CHECK(std::signbit(ops::tanh_of(-0.0f)));
  CHECK(std::isnan(ops::tanh_of(nan)));
  CHECK(std::isnan(ops::erf_of(nan)));
  CHECK(std::isnan(ops::logistic_of(nan)));
}

TEST_CASE("square roots are within 1 unit in the last place, that of 0 is 0") {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 997) {
    const float x = std::bit_cast<float>(bits);
    worst = std::max(worst, ulps(ops::sqrt_of(x), std::sqrt(static_cast<double>(x))));
  }
  CHECK(worst < 1.0);
  CHECK(ops::sqrt_of(0.0f) == 0.0f);
  CHECK(ops::sqrt_of(1e-40f) < 2e-20f);
}
