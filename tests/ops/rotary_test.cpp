#include "dtrain/ops/host/rotary.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

TEST_CASE_TEMPLATE("pairs (i, i + D/2) turn by position * base^(-2i/D)", T, float, double, dtrain::bfloat16,
                   dtrain::float16) {
  for (const Index threads : {1, 2})
    for (const Index head_size : {2, 6, 16, 40}) {
      Host device({.threads = threads});
      const Index heads = 3, context = 13, rows = 600, first_row = 26 + 4;
      const double base = 10000;
      auto x = test::random_tensor<T>(rows, heads * head_size, 1, 5);
      Tensor<T> y(rows, heads * head_size, 1), back(rows, heads * head_size);
      ops::rotary_forward(device, x.view(), heads, head_size, base, first_row, context, y.view());
      const Index half = head_size / 2;
      test::check_close(y, [&](Index r, Index c) {
        const Index i = c % head_size % half;
        const double angle = static_cast<double>((first_row + r) % context) *
                             std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
        return c % head_size < half ? x(r, c) * std::cos(angle) - x(r, c + half) * std::sin(angle)
                                    : x(r, c) * std::cos(angle) + x(r, c - half) * std::sin(angle);
      });

      std::vector<Accumulator<T>> table(static_cast<std::size_t>(ops::rotary_table_size(context, head_size)));
      ops::rotary_table(context, head_size, base, std::span(table));
      const Tensor<T> original = x;
      ops::rotary_forward(device, x.view(), heads, head_size, table, first_row, context, x.view());
      test::check_close(x, [&](Index r, Index c) { return y(r, c); }, 0.0);
      ops::rotary_backward(device, x.view(), heads, head_size, table, first_row, context, x.view());
      test::check_close(x, [&](Index r, Index c) { return original(r, c); });
      ops::rotary_backward(device, y.view(), heads, head_size, base, first_row, context, back.view());
      test::check_close(back, [&](Index r, Index c) { return original(r, c); });
    }
}

TEST_CASE("rotary gradients agree with finite differences") {
  Host device;
  auto x = test::random_tensor<double>(9, 12, 1);
  const auto dy = test::random_tensor<double>(9, 12, 2);
  Tensor<double> dx(9, 12);
  ops::rotary_backward(device, dy.view(), 2, 6, 100.0, 1, 4, dx.view());
  test::check_gradient("x", x, dx, [&] {
    Tensor<double> y(9, 12);
    ops::rotary_forward(device, x.view(), 2, 6, 100.0, 1, 4, y.view());
    return test::inner(y, dy);
  });
}

TEST_CASE("an odd head size is refused") {
  Host device;
  Tensor<float> x(4, 9);
  CHECK_THROWS_AS(ops::rotary_forward(device, x.view(), 3, 3, 100.0, 0, 4, x.view()), Error);
}
