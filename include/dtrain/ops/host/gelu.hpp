// GELU, x Phi(x), with Phi exact or in its tanh approximation (Hendrycks and Gimpel, 2016, section 2).
#pragma once

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/exp.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

/// Which Phi: (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, or (1 + erf(x / sqrt(2))) / 2.
enum class GeluKind { tanh_approximation, erf };

namespace detail {

/// (1 + tanh(u)) / 2 is the logistic of 2u: this is 2u for the approximation's u, and its derivative.
template <class A>
struct GeluTanh {
  static constexpr A linear = static_cast<A>(1.5957691216057308);   // 2 sqrt(2/pi)
  static constexpr A cubic = static_cast<A>(0.071354816272600248);  // linear * 0.044715

  [[gnu::always_inline]] static A forward(A x) { return x * logistic_of(x * (linear + cubic * x * x)); }
  [[gnu::always_inline]] static A slope(A x) {
    const A square = x * x;
    const A phi = logistic_of(x * (linear + cubic * square));
    return phi + x * phi * (1 - phi) * (linear + 3 * cubic * square);
  }
};

template <class A>
struct GeluErf {
  static constexpr A root_half = static_cast<A>(0.70710678118654752);
  static constexpr A density = static_cast<A>(0.39894228040143268);  // 1 / sqrt(2 pi)

  [[gnu::always_inline]] static A forward(A x) { return x * (A(0.5) + A(0.5) * erf_of(x * root_half)); }
  [[gnu::always_inline]] static A slope(A x) {
    return (A(0.5) + A(0.5) * erf_of(x * root_half)) + x * density * exp_of(A(-0.5) * x * x);
  }
};

template <class Kind, Scalar T>
void gelu_forward_rows(Host& device, Matrix<const T> x, Matrix<T> y) {
  device.parallel_for(y.rows(), grain_for(y.columns() * 8), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r)
      map_row(y.columns(), y.row(r), [](Accumulator<T> value) { return Kind::forward(value); }, x.row(r));
  });
}

template <class Kind, Scalar T>
void gelu_backward_rows(Host& device, Matrix<const T> x, Matrix<const T> dy, Matrix<T> dx) {
  using A = Accumulator<T>;
  device.parallel_for(dx.rows(), grain_for(dx.columns() * 8), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r)
      map_row(
          dx.columns(), dx.row(r), [](A value, A slope) { return slope * Kind::slope(value); }, x.row(r), dy.row(r));
  });
}

}  // namespace detail

/// y = x Phi(x); y may be x.
template <Scalar T>
void gelu_forward(Host& device, GeluKind kind, ReadMatrix<T> x, Matrix<T> y) {
  detail::check_same_shape("gelu_forward", x, y);
  if (kind == GeluKind::erf)
    detail::gelu_forward_rows<detail::GeluErf<Accumulator<T>>, T>(device, x, y);
  else
    detail::gelu_forward_rows<detail::GeluTanh<Accumulator<T>>, T>(device, x, y);
}

/// dx = dy (Phi(x) + x Phi'(x)); dx may be dy or x.
template <Scalar T>
void gelu_backward(Host& device, GeluKind kind, ReadMatrix<T> x, ReadMatrix<T> dy, Matrix<T> dx) {
  detail::check_same_shape("gelu_backward", x, dx);
  detail::check_same_shape("gelu_backward", dy, dx);
  if (kind == GeluKind::erf)
    detail::gelu_backward_rows<detail::GeluErf<Accumulator<T>>, T>(device, x, dy, dx);
  else
    detail::gelu_backward_rows<detail::GeluTanh<Accumulator<T>>, T>(device, x, dy, dx);
}

}  // namespace dtrain::ops
