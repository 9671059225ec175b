#include "dtrain/ops/host/gelu.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "reference.hpp"

using namespace dtrain;
using ops::GeluKind;
using test::Tensor;

namespace {

double reference(GeluKind kind, double x) {
  if (kind == GeluKind::erf) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

TEST_CASE_TEMPLATE("GELU agrees with its formula in double, also in place", T, float, double, dtrain::bfloat16,
                   dtrain::float16) {
  for (const Index threads : {1, 2})
    for (const GeluKind kind : {GeluKind::tanh_approximation, GeluKind::erf})
      for (const Index width : {1, 63, 64, 131}) {
        Host device({.threads = threads});
        auto x = test::random_tensor<T>(200, width, 1, 5);
        Tensor<T> y(200, width, 2);
        ops::gelu_forward(device, kind, x.view(), y.view());
        test::check_close(y, [&](Index r, Index c) { return reference(kind, x(r, c)); });
        ops::gelu_forward(device, kind, x.view(), x.view());
        test::check_close(x, [&](Index r, Index c) { return y(r, c); }, 0.0);
      }
}

TEST_CASE("GELU of large numbers is the number or 0") {
  Host device;
  for (const GeluKind kind : {GeluKind::tanh_approximation, GeluKind::erf}) {
    Tensor<float> x(1, 4), y(1, 4), dx(1, 4);
    x.elements = {1000.0f, -1000.0f, 1e15f, -1e15f};
    const std::vector<float> expected{1000.0f, -0.0f, 1e15f, -0.0f};
    ops::gelu_forward(device, kind, x.view(), y.view());
    CHECK(y.elements == expected);
  }
}

TEST_CASE("GELU gradients agree with finite differences; dx may be dy") {
  for (const Index threads : {1, 2})
    for (const GeluKind kind : {GeluKind::tanh_approximation, GeluKind::erf}) {
      Host device({.threads = threads});
      auto x = test::random_tensor<double>(9, 71, 1);
      const auto dy = test::random_tensor<double>(9, 71, 2);
      Tensor<double> dx = dy;
      ops::gelu_backward(device, kind, x.view(), dx.view(), dx.view());
      test::check_gradient("x", x, dx, [&] {
        Tensor<double> y(9, 71);
        ops::gelu_forward(device, kind, x.view(), y.view());
        return test::inner(y, dy);
      });
    }
}

TEST_CASE("GELU gradients in float agree with those in double") {
  Host device;
  const auto x = test::random_tensor<float>(50, 131, 1);
  const auto dy = test::random_tensor<float>(50, 131, 2);
  Tensor<double> wide_x(50, 131), wide_dy(50, 131), wide_dx(50, 131);
  for (std::size_t i = 0; i < x.elements.size(); ++i) {
    wide_x.elements[i] = static_cast<double>(x.elements[i]);
    wide_dy.elements[i] = static_cast<double>(dy.elements[i]);
  }
  for (const GeluKind kind : {GeluKind::tanh_approximation, GeluKind::erf}) {
    Tensor<float> dx(50, 131);
    ops::gelu_backward(device, kind, x.view(), dy.view(), dx.view());
    ops::gelu_backward(device, kind, wide_x.view(), wide_dy.view(), wide_dx.view());
    test::check_close(dx, [&](Index r, Index c) { return wide_dx(r, c); }, 1e-6);
  }
}
