// Gradients of parameters in another type than activations: what is added, how often it is rounded.
#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <vector>

#include "dtrain/ops/host/embedding.hpp"
#include "dtrain/ops/host/layer_norm.hpp"
#include "dtrain/ops/host/linear.hpp"
#include "dtrain/ops/host/rms_norm.hpp"
#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

namespace {

constexpr Index rows = 70, width = 37, outputs = 21;

// The sum is kept in float and rounded to the gradient's type once.
template <class G>
constexpr double bound() {
  return std::same_as<G, float> ? 3e-6 : 0x1p-8 + 3e-6;
}

template <class T, class G>
struct Types {
  using Activation = T;
  using Gradient = G;
};

}  // namespace

TEST_CASE_TEMPLATE("gradients are added in a type of their own", Pair, Types<dtrain::bfloat16, float>,
                   Types<dtrain::bfloat16, dtrain::bfloat16>, Types<float16, float>, Types<float, dtrain::bfloat16>) {
  using T = typename Pair::Activation;
  using G = typename Pair::Gradient;
  Host device({.threads = 2});
  const auto x = test::random_tensor<T>(rows, width, 1);
  const auto dy = test::random_tensor<T>(rows, outputs, 2);
  const auto dx = test::random_tensor<T>(rows, width, 3);
  const auto sum_over_rows = [](auto&& term) {
    double sum = 1.0;  // what the gradients begin with
    for (Index r = 0; r < rows; ++r) sum += term(r);
    return sum;
  };
  const auto ones = [](Index r, Index c) {
    Tensor<G> tensor(r, c);
    for (auto& element : tensor.elements) element = G(1.0f);
    return tensor;
  };

  SUBCASE("linear") {
    auto dweight = ones(outputs, width);
    auto dbias = ones(1, outputs);
    ops::linear_backward_weight(device, x.view(), dy.view(), dweight.view());
    ops::bias_backward(device, dy.view(), dbias.span());
    test::check_close(
        dweight, [&](Index o, Index i) { return sum_over_rows([&](Index r) { return dy(r, o) * x(r, i); }); },
        bound<G>());
    test::check_close(
        dbias, [&](Index, Index o) { return sum_over_rows([&](Index r) { return dy(r, o); }); }, bound<G>());
  }
  SUBCASE("norms") {
    Tensor<float> statistics(rows, 2), rstd(rows, 1);
    const RandomStream stream(5, 1);
    for (Index r = 0; r < rows; ++r) {
      statistics.view()(r, 0) = 0.25f * static_cast<float>(stream.normal(static_cast<std::uint64_t>(r)));
      statistics.view()(r, 1) = 1.0f + 0.01f * static_cast<float>(r);
      rstd.view()(r, 0) = 0.5f + 0.01f * static_cast<float>(r);
    }
    auto dgamma = ones(1, width), dbeta = ones(1, width), drms = ones(1, width);
    ops::layer_norm_backward_weight(device, x.view(), statistics.view(), dx.view(), dgamma.span(), dbeta.span());
    ops::rms_norm_backward_weight(device, x.view(), rstd.view(), dx.view(), drms.span());
    test::check_close(
        dgamma,
        [&](Index, Index c) {
          return sum_over_rows([&](Index r) { return dx(r, c) * (x(r, c) - statistics(r, 0)) * statistics(r, 1); });
        },
        bound<G>());
    test::check_close(
        dbeta, [&](Index, Index c) { return sum_over_rows([&](Index r) { return dx(r, c); }); }, bound<G>());
    test::check_close(
        drms, [&](Index, Index c) { return sum_over_rows([&](Index r) { return dx(r, c) * x(r, c) * rstd(r, 0); }); },
        bound<G>());
  }
}

// fault D8
TEST_CASE("a float gradient of bfloat16 rows keeps what running sums in bfloat16 lose") {
  Host device;
  const std::vector<std::int32_t> tokens(8, 0);
  Tensor<dtrain::bfloat16> dy(8, 1);
  for (auto& element : dy.elements) element = 1.0f;
  dy.elements[0] = 256.0f;
  // One row after the other, as micro-batches would add them.
  Tensor<float> wide(1, 1);
  Tensor<dtrain::bfloat16> narrow(1, 1);
  ops::embedding_backward(device, tokens, dy.view(), {0, 1}, wide.view());
  ops::embedding_backward(device, tokens, dy.view(), {0, 1}, narrow.view());
  CHECK(wide[0] == 263.0);
  CHECK(narrow[0] == 256.0);  // 257 lies halfway between 256 and 258
  Tensor<float> positions(1, 1);
  ops::position_backward(device, dy.view(), 0, 1, positions.view());
  CHECK(positions[0] == 263.0);
  // Within one call of the others the sum is in float whatever the gradient's type, and is rounded once.
  Tensor<dtrain::bfloat16> column(1, 1);
  ops::accumulate_column_sums(device, dy.view(), column.span());
  CHECK(column[0] == 264.0);
}
