#include "dtrain/ops/host/reduce.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

TEST_CASE_TEMPLATE("the sum of squares is taken in double and does not depend on threads", T, float, double,
                   dtrain::bfloat16, dtrain::float16) {
  Host one, two({.threads = 2});
  for (const Index count : {0, 1, 7, 4096, 4097, 100003}) {
    const auto values = test::random_tensor<T>(1, count, 1);
    double expected = 0;
    for (const T value : values.elements) expected += static_cast<double>(value) * static_cast<double>(value);
    const double sum = ops::sum_of_squares(one, values.span());
    CHECK(sum == doctest::Approx(expected).epsilon(1e-13));
    CHECK(ops::sum_of_squares(two, values.span()) == sum);
  }
}

TEST_CASE_TEMPLATE("one infinity or NaN anywhere is found", T, float, double, dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    for (const Index count : {1, 15, 16, 140001}) {
      auto values = test::random_tensor<T>(1, count, 1);
      values.elements.back() = static_cast<T>(std::same_as<T, float16> ? 65504.0f : 3e38f);
      CHECK(ops::all_finite(device, values.span()));
      for (const Index at : {Index{0}, count / 2, count - 1})
        for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
          const T kept = values.elements[static_cast<std::size_t>(at)];
          values.elements[static_cast<std::size_t>(at)] = static_cast<T>(bad);
          CHECK_FALSE(ops::all_finite(device, values.span()));
          values.elements[static_cast<std::size_t>(at)] = kept;
        }
    }
    CHECK(ops::all_finite(device, std::span<const T>{}));
  }
}

TEST_CASE_TEMPLATE("scale, add, accumulate and column sums", T, float, double, dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    const auto x = test::random_tensor<T>(1801, 77, 1, 3);
    const auto y = test::random_tensor<T>(1801, 77, 2, 1);
    Tensor<T> sum(1801, 77);
    ops::add(device, x.view(), y.view(), sum.view());
    test::check_close(sum, [&](Index r, Index c) { return x(r, c) + y(r, c); });
    const Tensor<T> before = sum;
    ops::accumulate(device, x.view(), sum.view());
    test::check_close(sum, [&](Index r, Index c) { return before(r, c) + x(r, c); });
    sum = before;
    ops::accumulate(device, before.span(), sum.span());
    test::check_close(sum, [&](Index r, Index c) { return 2 * before(r, c); });
    ops::scale(device, sum.span(), Accumulator<T>(0.25f));
    test::check_close(sum, [&](Index r, Index c) { return before(r, c) / 2; });

    Tensor<T> columns(1, 77);
    device.fill(columns.span(), T{5});
    ops::accumulate_column_sums(device, x.view(), columns.span());
    test::check_close(columns, [&](Index, Index c) {
      double total = 5;
      for (Index r = 0; r < 1801; ++r) total += x(r, c);
      return total;
    });
  }
}

TEST_CASE("bfloat16 sums are kept in float and rounded once") {
  // fault D8
  Host device;
  Tensor<dtrain::bfloat16> values(8, 1), sum(1, 1);
  device.fill(values.span(), dtrain::bfloat16(1.0f));
  values.elements[0] = 256.0f;
  ops::accumulate_column_sums(device, values.view(), sum.span());
  CHECK(sum(0, 0) == 264.0);
  Tensor<dtrain::bfloat16> ones(512, 1);
  device.fill(ones.span(), dtrain::bfloat16(1.0f));
  sum.elements[0] = 0.0f;
  ops::accumulate_column_sums(device, ones.view(), sum.span());
  CHECK(sum(0, 0) == 512.0);
}

TEST_CASE("casts round to nearest, ties to even") {
  Host device;
  const std::vector<float> from{1.0f, 1.00390625f, 1.01171875f, -3.0f};
  std::vector<dtrain::bfloat16> narrow(4);
  std::vector<float> back(4);
  std::vector<double> wide(4);
  ops::cast(device, std::span(from), std::span(narrow));
  ops::cast(device, std::span(narrow), std::span(back));
  ops::cast(device, std::span(from), std::span(wide));
  CHECK(back == std::vector<float>{1.0f, 1.0f, 1.015625f, -3.0f});
  CHECK(wide[2] == 1.01171875);
}
