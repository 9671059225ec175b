#include "dtrain/ops/host/linear.hpp"

#include <doctest/doctest.h>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

TEST_CASE_TEMPLATE("linear forward agrees with a sum in double", T, float, double, dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    const auto x = test::random_tensor<T>(1701, 19, 1, 3);
    const auto weight = test::random_tensor<T>(83, 19, 2);
    const auto bias = test::random_tensor<T>(1, 83, 3);
    Tensor<T> y(1701, 83, 2);
    const auto expected = [&](double with_bias) {
      return [&, with_bias](Index r, Index c) {
        double sum = with_bias * bias(0, c);
        for (Index k = 0; k < 19; ++k) sum += x(r, k) * weight(c, k);
        return sum;
      };
    };
    ops::linear_forward(device, x.view(), weight.view(), bias.span(), y.view());
    test::check_close(y, expected(1));
    ops::linear_forward(device, x.view(), weight.view(), {}, y.view());
    test::check_close(y, expected(0));
    ops::bias_forward(device, y.view(), bias.span());
    test::check_close(y, expected(1));
  }
}

TEST_CASE("linear backward agrees with finite differences; weights accumulate, inputs are overwritten") {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    auto x = test::random_tensor<double>(7, 5, 1);
    auto weight = test::random_tensor<double>(3, 5, 2);
    auto bias = test::random_tensor<double>(1, 3, 3);
    const auto dy = test::random_tensor<double>(7, 3, 4);
    const auto loss = [&] {
      Tensor<double> y(7, 3);
      ops::linear_forward(device, x.view(), weight.view(), bias.span(), y.view());
      return test::inner(y, dy);
    };
    auto dx = test::random_tensor<double>(7, 5, 5);
    Tensor<double> dweight(3, 5), dbias(1, 3);
    ops::linear_backward_input(device, dy.view(), weight.view(), dx.view());
    ops::linear_backward_weight(device, x.view(), dy.view(), dweight.view());
    ops::bias_backward(device, dy.view(), dbias.span());
    test::check_gradient("x", x, dx, loss);
    test::check_gradient("weight", weight, dweight, loss);
    test::check_gradient("bias", bias, dbias, loss);

    const Tensor<double> once_weight = dweight, once_bias = dbias;
    ops::linear_backward_weight(device, x.view(), dy.view(), dweight.view());
    ops::bias_backward(device, dy.view(), dbias.span());
    test::check_close(dweight, [&](Index r, Index c) { return 2 * once_weight(r, c); });
    test::check_close(dbias, [&](Index r, Index c) { return 2 * once_bias(r, c); });
  }
}
