#include "dtrain/ops/host/cross_entropy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using ops::LossSum;
using test::Tensor;

namespace {

constexpr Index ignored = -100;

/// Cross entropy with the vocabulary cut into `widths`; logits holds the parts side by side and becomes the gradient.
template <class T>
LossSum cut_cross_entropy(Host& device, Tensor<T>& logits, const std::vector<Index>& widths, Index valid,
                          const std::vector<std::int32_t>& targets, double scale) {
  using A = Accumulator<T>;
  const auto rows = targets.size();
  std::vector<A> maximum(rows, -std::numeric_limits<A>::infinity()), sum(rows, A{0}), target(rows, A{0});
  std::vector<A> part(rows), part_target(rows);
  const auto for_parts = [&](auto f) {
    Index begin = 0;
    for (const Index width : widths) {
      const Range range{begin, begin + width};
      f(logits.view().column_range(range), range);
      begin = range.end;
    }
  };
  ops::check_targets(targets, valid, ignored);
  for_parts([&](Matrix<T> view, Range range) {
    ops::cross_entropy_row_max(device, view, range, valid, part);
    for (std::size_t r = 0; r < rows; ++r) maximum[r] = std::max(maximum[r], part[r]);
  });
  for_parts([&](Matrix<T> view, Range range) {
    ops::cross_entropy_row_sum(device, view, range, valid, targets, maximum, part, part_target);
    for (std::size_t r = 0; r < rows; ++r) {
      sum[r] += part[r];
      target[r] += part_target[r];
    }
  });
  const LossSum loss = ops::cross_entropy_loss(std::span(maximum), sum, target, targets, ignored);
  for_parts([&](Matrix<T> view, Range range) {
    ops::cross_entropy_backward(device, view, range, valid, targets, maximum, sum, scale, ignored);
  });
  return loss;
}

}  // namespace

TEST_CASE_TEMPLATE("loss and gradient of [1, 2, 3, 4] with target 2", T, float, double) {
  // fault C17
  Host device;
  Tensor<T> logits(1, 4);
  logits.elements = {1, 2, 3, 4};
  const LossSum loss = cut_cross_entropy(device, logits, {4}, 4, {2}, 1.0);
  CHECK(loss.tokens == 1);
  CHECK(loss.sum == doctest::Approx(1.4401897).epsilon(1e-7));
  const double expected[] = {.0320586, .0871443, -.7631172, .6439143};
  for (Index c = 0; c < 4; ++c) CHECK(std::fabs(logits(0, c) - expected[c]) < (std::same_as<T, double> ? 6e-8 : 2e-7));
}

TEST_CASE("a target in another part of the vocabulary and a padded last part stay finite") {
  // fault C15
  Host device;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int32_t target : {0, 1, 2, 3, 4}) {
    Tensor<float> whole(1, 5), cut(1, 6), garbage(1, 8);
    whole.elements = {1, -2, 3, 0.5f, 2};
    cut.elements = {1, -2, 3, 0.5f, 2, infinity};
    garbage.elements = {1, -2, 3, 0.5f, 2, nan, infinity, -infinity};
    const LossSum expected = cut_cross_entropy(device, whole, {5}, 5, {target}, 0.5);
    const LossSum two = cut_cross_entropy(device, cut, {3, 3}, 5, {target}, 0.5);
    const LossSum four = cut_cross_entropy(device, garbage, {2, 2, 2, 2}, 5, {target}, 0.5);
    CHECK(std::isfinite(expected.sum));
    CHECK(two.sum == doctest::Approx(expected.sum).epsilon(1e-6));
    CHECK(four.sum == doctest::Approx(expected.sum).epsilon(1e-6));
    for (Index c = 0; c < 5; ++c) {
      CHECK(std::fabs(cut(0, c) - whole(0, c)) < 1e-7);
      CHECK(std::fabs(garbage(0, c) - whole(0, c)) < 1e-7);
    }
    CHECK(cut(0, 5) == 0.0);
    for (Index c = 5; c < 8; ++c) CHECK(garbage(0, c) == 0.0);
  }
}

TEST_CASE_TEMPLATE("cross entropy agrees with its formula in double, for any cut of the vocabulary", T, float, double,
                   dtrain::bfloat16, dtrain::float16) {
  const Index rows = 1300, vocabulary = 101;
  std::vector<std::int32_t> targets;
  for (Index r = 0; r < rows; ++r)
    targets.push_back(r % 7 == 3 ? -100 : static_cast<std::int32_t>(r * 31 % vocabulary));
  const double scale = 1.0 / 1114;
  for (const Index threads : {1, 2})
    for (const std::vector<Index>& widths : {std::vector<Index>{101}, {60, 60}, {1, 99, 10, 10}}) {
      Host device({.threads = threads});
      Index columns = 0;
      for (const Index width : widths) columns += width;
      auto logits = test::random_tensor<T>(rows, columns, 1, 2);
      const Tensor<T> before = logits;
      const LossSum loss = cut_cross_entropy(device, logits, widths, vocabulary, targets, scale);
      double sum = 0;
      Index tokens = 0;
      std::vector<double> log_sums;
      for (Index r = 0; r < rows; ++r) {
        double exponentials = 0;
        for (Index c = 0; c < vocabulary; ++c) exponentials += std::exp(before(r, c));
        log_sums.push_back(std::log(exponentials));
        const Index target = targets[static_cast<std::size_t>(r)];
        if (target == ignored) continue;
        sum += log_sums.back() - before(r, target);
        ++tokens;
      }
      CHECK(loss.tokens == tokens);
      CHECK(loss.sum == doctest::Approx(sum).epsilon(std::same_as<T, double> ? 1e-14 : 1e-6));
      test::check_close(logits, [&](Index r, Index c) {
        const Index target = targets[static_cast<std::size_t>(r)];
        if (target == ignored || c >= vocabulary) return 0.0;
        return (std::exp(before(r, c) - log_sums[static_cast<std::size_t>(r)]) - (c == target ? 1.0 : 0.0)) * scale;
      });
    }
}

TEST_CASE("cross entropy gradients agree with finite differences") {
  Host device;
  auto logits = test::random_tensor<double>(4, 9, 1);
  const std::vector<std::int32_t> targets{3, -100, 8, 0};
  Tensor<double> gradient = logits;
  (void)cut_cross_entropy(device, gradient, {5, 4}, 9, targets, 0.25);
  test::check_gradient("logits", logits, gradient, [&] {
    Tensor<double> copy = logits;
    return cut_cross_entropy(device, copy, {9}, 9, targets, 1.0).sum * 0.25;
  });
}

TEST_CASE("large logits do not overflow") {
  Host device;
  Tensor<float> logits(1, 3);
  logits.elements = {10000, 9999, -10000};
  const LossSum loss = cut_cross_entropy(device, logits, {3}, 3, {1}, 1.0);
  CHECK(loss.sum == doctest::Approx(1.0 + std::log1p(std::exp(-1.0))).epsilon(1e-6));
  CHECK(logits(0, 2) == 0.0);
}

TEST_CASE("rows that are all ignored give loss 0 and gradient 0, whatever they hold") {
  Host device;
  Tensor<float> logits(2, 3);
  logits.elements = {std::numeric_limits<float>::quiet_NaN(), 1, 2, std::numeric_limits<float>::infinity(), 0, 0};
  const double no_tokens = 1.0 / 0.0;  // what a mean over no tokens would pass
  const LossSum loss = cut_cross_entropy(device, logits, {3}, 3, {-100, -100}, no_tokens);
  CHECK(loss.sum == 0.0);
  CHECK(loss.tokens == 0);
  for (const float element : logits.elements) CHECK(element == 0.0f);
}

TEST_CASE("targets that are no words are data errors with row and value") {
  const std::vector<std::int32_t> good{0, 4, -100};
  CHECK_NOTHROW(ops::check_targets(good, 5, ignored));
  const std::vector<std::int32_t> high{0, 5}, negative{0, 1, -1};
  CHECK_THROWS_WITH_AS(ops::check_targets(high, 5, ignored),
                       "cross_entropy: the target of row 1 is 5; it must lie in [0, 5) or be -100, the ignored value.",
                       DataError);
  CHECK_THROWS_AS(ops::check_targets(negative, 5, ignored), DataError);
}
