#include "dtrain/ops/host/swiglu.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

TEST_CASE_TEMPLATE("SwiGLU agrees with its formula in double", T, float, double, dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2})
    for (const Index width : {1, 64, 131}) {
      Host device({.threads = threads});
      const auto x = test::random_tensor<T>(200, 2 * width, 1, 3);
      Tensor<T> y(200, width, 1);
      ops::swiglu_forward(device, x.view(), y.view());
      test::check_close(y, [&](Index r, Index c) { return x(r, c) / (1 + std::exp(-x(r, c))) * x(r, width + c); });
    }
}

TEST_CASE("SwiGLU gradients agree with finite differences, in place too") {
  for (const Index threads : {1, 2})
    for (const Index width : {5, 70}) {
      Host device({.threads = threads});
      auto x = test::random_tensor<double>(6, 2 * width, 1);
      const auto dy = test::random_tensor<double>(6, width, 2);
      Tensor<double> dx(6, 2 * width);
      ops::swiglu_backward(device, x.view(), dy.view(), dx.view());
      test::check_gradient("x", x, dx, [&] {
        Tensor<double> y(6, width);
        ops::swiglu_forward(device, x.view(), y.view());
        return test::inner(y, dy);
      });
      ops::swiglu_backward(device, x.view(), dy.view(), x.view());
      CHECK(x.elements == dx.elements);
    }
}

TEST_CASE("the gate and up matrix must be twice as wide") {
  Host device;
  Tensor<float> x(2, 6), y(2, 4);
  CHECK_THROWS_AS(ops::swiglu_forward(device, x.view(), y.view()), Error);
}
