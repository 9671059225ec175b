#include "dtrain/optim/clip.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <span>
#include <vector>

#include "dtrain/device/host.hpp"

using dtrain::Index;
using dtrain::optim::clip_coefficient;
using dtrain::optim::GradientNorm;

namespace {

struct Share {
  std::vector<float> gradient;
  bool counted = true;
};

/// What one all-reduce of one number over all ranks gives.
GradientNorm global(const std::vector<std::vector<Share>>& ranks) {
  dtrain::Host host;
  GradientNorm sum;
  for (const auto& shares : ranks) {
    GradientNorm local;
    for (const Share& share : shares) local.add(host, std::span<const float>(share.gradient), share.counted);
    sum += local;
  }
  return sum;
}

}  // namespace

// fault B1
TEST_CASE("a gradient that both tensor ranks hold counts once") {
  const GradientNorm norm = global({{{{3}}, {{4}}}, {{{3}, false}, {{12}}}});
  CHECK(norm.norm() == 13.0);
  CHECK(clip_coefficient(norm.norm(), 1.0).coefficient == 1.0 / 13.0);
}

// fault B3
TEST_CASE("the norm is that of all pipeline stages together") { CHECK(global({{{{3}}}, {{{4}}}}).norm() == 5.0); }

TEST_CASE("long gradients are summed in double") {
  dtrain::Host host;
  const std::vector<float> gradient(100003, 0.1f);
  GradientNorm norm;
  norm.add(host, std::span<const float>(gradient));
  const double square = static_cast<double>(0.1f) * static_cast<double>(0.1f);
  CHECK(norm.squares == doctest::Approx(100003 * square).epsilon(1e-12));
}

TEST_CASE("norms within the bound, and a bound of zero, leave gradients alone") {
  CHECK(clip_coefficient(0.5, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(1.0, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(0.0, 1.0).coefficient == 1.0);
  CHECK(clip_coefficient(1e9, 0.0).coefficient == 1.0);
  CHECK(clip_coefficient(1e9, std::numeric_limits<double>::infinity()).coefficient == 1.0);
  CHECK(clip_coefficient(4.0, 2.0).coefficient == 0.5);
  CHECK_FALSE(clip_coefficient(4.0, 2.0).skip);
}

// fault B8
TEST_CASE("a norm that is not finite asks every rank to skip") {
  const float infinite = std::numeric_limits<float>::infinity();
  const float undefined = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {infinite, -infinite, undefined}) {
    const double norm = global({{{{1, 2, 3}}}, {{{1, bad, 3}}}}).norm();
    for (const double max_norm : {1.0, 0.0, static_cast<double>(infinite)}) {
      CHECK(clip_coefficient(norm, max_norm).skip);
      CHECK(clip_coefficient(norm, max_norm).coefficient == 0.0);
    }
  }
}
