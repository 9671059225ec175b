#include "dtrain/optim/clip.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>

using dtrain::optim::clip_coefficient;

TEST_CASE("norms within the bound, and a bound of zero, leave gradients alone") {
  CHECK(clip_coefficient(0.5, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(1.0, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(0.0, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(1e9, 0.0).coefficient == 1.0);
  CHECK(clip_coefficient(1e9, std::numeric_limits<double>::infinity()).coefficient == 1.0);
  CHECK(clip_coefficient(4.0, 2.0).coefficient == 0.5);
  CHECK(clip_coefficient(13.0, 1.0).coefficient == 1.0 / 13.0);
  CHECK_FALSE(clip_coefficient(4.0, 2.0).skip);
}

// fault B8
TEST_CASE("a norm that is not finite asks every rank to skip") {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double norm : {infinite, -infinite, std::numeric_limits<double>::quiet_NaN()})
    for (const double max_norm : {1.0, 0.0, infinite}) {
      CHECK(clip_coefficient(norm, max_norm).skip);
      CHECK(clip_coefficient(norm, max_norm).coefficient == 0.0);
    }
}
