#include <doctest/doctest.h>

#include <cmath>

#include "dtrain/ops/host/layer_norm.hpp"
#include "dtrain/ops/host/rms_norm.hpp"
#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

namespace {

struct Row {
  double mean = 0;
  double variance = 0;
  double mean_square = 0;
};

template <class T>
Row moments(const Tensor<T>& x, Index r) {
  Row row;
  const auto width = static_cast<double>(x.columns);
  for (Index c = 0; c < x.columns; ++c) row.mean += x(r, c) / width;
  for (Index c = 0; c < x.columns; ++c) {
    row.variance += (x(r, c) - row.mean) * (x(r, c) - row.mean) / width;
    row.mean_square += x(r, c) * x(r, c) / width;
  }
  return row;
}

}  // namespace

TEST_CASE_TEMPLATE("norms agree with their formulas in double", T, float, double, dtrain::bfloat16, dtrain::float16) {
  using A = Accumulator<T>;
  const double epsilon = 1e-3;
  for (const Index threads : {1, 2})
    for (const Index width : {1, 5, 16, 83, 200}) {
      Host device({.threads = threads});
      const Index rows = 700;
      auto x = test::random_tensor<T>(rows, width, 1, 3);
      const auto gamma = test::random_tensor<T>(1, width, 2);
      const auto beta = test::random_tensor<T>(1, width, 3);
      Tensor<T> y(rows, width, 1);
      Tensor<A> statistics(rows, 2), rstd(rows, 1);
      ops::layer_norm_forward(device, x.view(), gamma.span(), beta.span(), static_cast<A>(epsilon), y.view(),
                              statistics.view());
      const auto layer = [&](Index r, Index c) {
        const Row row = moments(x, r);
        return (x(r, c) - row.mean) / std::sqrt(row.variance + epsilon) * gamma(0, c) + beta(0, c);
      };
      test::check_close(y, layer);
      const double bound = std::same_as<T, double> ? 1e-13 : 3e-6;
      test::check_close(
          statistics,
          [&](Index r, Index c) {
            const Row row = moments(x, r);
            return c == 0 ? row.mean : 1 / std::sqrt(row.variance + epsilon);
          },
          bound);
      ops::rms_norm_forward(device, x.view(), gamma.span(), static_cast<A>(epsilon), y.view(), rstd.view());
      const auto rms = [&](Index r, Index c) {
        return x(r, c) / std::sqrt(moments(x, r).mean_square + epsilon) * gamma(0, c);
      };
      test::check_close(y, rms);
      const Tensor<T> kept = y;
      ops::rms_norm_forward(device, x.view(), gamma.span(), static_cast<A>(epsilon), x.view(), rstd.view());
      test::check_close(x, [&](Index r, Index c) { return kept(r, c); }, 0.0);
    }
}

TEST_CASE("a large mean does not swallow the variance") {
  Host device;
  Tensor<float> x(1, 4), y(1, 4);
  Tensor<float> statistics(1, 2);
  x.elements = {10001, 10002, 10003, 10004};
  const std::vector<float> gamma(4, 1.0f), beta(4, 0.0f);
  ops::layer_norm_forward(device, x.view(), gamma, beta, 0.0f, y.view(), statistics.view());
  const double unit = 1 / std::sqrt(1.25);
  test::check_close(y, [&](Index, Index c) { return (static_cast<double>(c) - 1.5) * unit; }, 1e-6);
}

TEST_CASE("norm gradients agree with finite differences, accumulate in weights and may overwrite dy") {
  for (const Index threads : {1, 2})
    for (const Index width : {7, 40}) {
      Host device({.threads = threads});
      const Index rows = 5;
      auto x = test::random_tensor<double>(rows, width, 1);
      auto gamma = test::random_tensor<double>(1, width, 2);
      auto beta = test::random_tensor<double>(1, width, 3);
      const auto dy = test::random_tensor<double>(rows, width, 4);
      Tensor<double> statistics(rows, 2), rstd(rows, 1), y(rows, width);
      const auto layer_loss = [&] {
        ops::layer_norm_forward(device, x.view(), gamma.span(), beta.span(), 1e-5, y.view(), statistics.view());
        return test::inner(y, dy);
      };
      (void)layer_loss();
      const Tensor<double> seen = statistics;
      Tensor<double> dx = dy, dgamma(1, width), dbeta(1, width);
      ops::layer_norm_backward_weight(device, x.view(), seen.view(), dy.view(), dgamma.span(), dbeta.span());
      ops::layer_norm_backward_input(device, x.view(), gamma.span(), seen.view(), dx.view(), dx.view());
      test::check_gradient("layer x", x, dx, layer_loss);
      test::check_gradient("layer gamma", gamma, dgamma, layer_loss);
      test::check_gradient("layer beta", beta, dbeta, layer_loss);
      const Tensor<double> once = dgamma, once_beta = dbeta;
      ops::layer_norm_backward_weight(device, x.view(), seen.view(), dy.view(), dgamma.span(), dbeta.span());
      test::check_close(dgamma, [&](Index r, Index c) { return 2 * once(r, c); });
      test::check_close(dbeta, [&](Index r, Index c) { return 2 * once_beta(r, c); });

      const auto rms_loss = [&] {
        ops::rms_norm_forward(device, x.view(), gamma.span(), 1e-5, y.view(), rstd.view());
        return test::inner(y, dy);
      };
      (void)rms_loss();
      const Tensor<double> seen_rstd = rstd;
      dx = dy;
      Tensor<double> drms(1, width);
      ops::rms_norm_backward_weight(device, x.view(), seen_rstd.view(), dy.view(), drms.span());
      ops::rms_norm_backward_input(device, x.view(), gamma.span(), seen_rstd.view(), dx.view(), dx.view());
      test::check_gradient("rms x", x, dx, rms_loss);
      test::check_gradient("rms gamma", gamma, drms, rms_loss);
      const Tensor<double> once_rms = drms;
      ops::rms_norm_backward_weight(device, x.view(), seen_rstd.view(), dy.view(), drms.span());
      test::check_close(drms, [&](Index r, Index c) { return 2 * once_rms(r, c); });
    }
}

TEST_CASE("weight gradients are bit-identical on one thread and on two") {
  Host one({.threads = 1}), two({.threads = 2});
  const auto x = test::random_tensor<float>(3000, 77, 1);
  const auto dy = test::random_tensor<float>(3000, 77, 2);
  const auto statistics = test::random_tensor<float>(3000, 2, 3);
  Tensor<float> scale1(1, 77), shift1(1, 77), scale2(1, 77), shift2(1, 77);
  ops::layer_norm_backward_weight(one, x.view(), statistics.view(), dy.view(), scale1.span(), shift1.span());
  ops::layer_norm_backward_weight(two, x.view(), statistics.view(), dy.view(), scale2.span(), shift2.span());
  CHECK(scale1.elements == scale2.elements);
  CHECK(shift1.elements == shift2.elements);
}
