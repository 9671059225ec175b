// What the tests of operations share: random tensors, comparison with a reference in double, finite differences.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::test {

/// A matrix that owns its elements; `padding` elements that belong to nobody follow each row.
template <class T>
struct Tensor {
  Index rows;
  Index columns;
  Index stride;
  std::vector<T> elements;

  Tensor(Index rows_, Index columns_, Index padding = 0)
      : rows(rows_),
        columns(columns_),
        stride(columns_ + padding),
        elements(static_cast<std::size_t>(rows_ * stride)) {}

  Matrix<T> view() { return {elements.data(), rows, columns, stride}; }
  Matrix<const T> view() const { return {elements.data(), rows, columns, stride}; }
  std::span<T> span() { return elements; }
  std::span<const T> span() const { return elements; }
  double operator()(Index r, Index c) const {
    return static_cast<double>(elements[static_cast<std::size_t>(r * stride + c)]);
  }
  double operator[](Index i) const { return static_cast<double>(elements[static_cast<std::size_t>(i)]); }
};

/// Standard normal elements, a function of `seed` alone; padding holds NaN, so that reading it shows.
template <class T>
Tensor<T> random_tensor(Index rows, Index columns, std::uint64_t seed, Index padding = 0) {
  Tensor<T> tensor(rows, columns, padding);
  const RandomStream stream(seed, hash_name("test"));
  for (auto& element : tensor.elements) element = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c)
      tensor.view()(r, c) =
          static_cast<T>(static_cast<float>(stream.normal(static_cast<std::uint64_t>(r * columns + c))));
  return tensor;
}

/// A relative bound on rounding that suits sums of a few hundred terms.
template <class T>
constexpr double tolerance() {
  return std::same_as<T, double> ? 1e-13 : std::same_as<T, float> ? 3e-6 : std::same_as<T, float16> ? 3e-3 : 2e-2;
}

/// Every element of `actual` equals reference(r, c) within `bound`, relative to the largest reference element.
template <class T, class Reference>
void check_close(const Tensor<T>& actual, Reference reference, double bound = tolerance<T>()) {
  double largest = 1e-30;
  for (Index r = 0; r < actual.rows; ++r)
    for (Index c = 0; c < actual.columns; ++c) largest = std::max(largest, std::fabs(reference(r, c)));
  for (Index r = 0; r < actual.rows; ++r)
    for (Index c = 0; c < actual.columns; ++c) {
      const double error = std::fabs(actual(r, c) - reference(r, c));
      const bool close = error <= bound * largest;  // false for NaN
      if (!close) {
        CAPTURE(r);
        CAPTURE(c);
        CAPTURE(actual(r, c));
        CAPTURE(reference(r, c));
        CHECK(close);
        return;
      }
    }
  CHECK(true);
}

/// sum over all elements of a * b: a scalar loss whose gradient with respect to `a` is `b`.
inline double inner(const Tensor<double>& a, const Tensor<double>& b) {
  double sum = 0;
  for (Index r = 0; r < a.rows; ++r)
    for (Index c = 0; c < a.columns; ++c) sum += a(r, c) * b(r, c);
  return sum;
}

/// Central differences of `loss()` with respect to each element of `at` agree with `gradient` within 1e-6 of the
/// largest of them.
template <class Loss>
void check_gradient(std::string_view what, Tensor<double>& at, const Tensor<double>& gradient, Loss loss,
                    double step = 1e-5) {
  CAPTURE(what);
  Tensor<double> differences(at.rows, at.columns);
  for (Index r = 0; r < at.rows; ++r)
    for (Index c = 0; c < at.columns; ++c) {
      double& element = at.view()(r, c);
      const double kept = element;
      element = kept + step;
      const double above = loss();
      element = kept - step;
      const double below = loss();
      element = kept;
      differences.view()(r, c) = (above - below) / (2 * step);
    }
  check_close(gradient, [&](Index r, Index c) { return differences(r, c); }, 1e-6);
}

}  // namespace dtrain::test
