// SwiGLU: the gated unit silu(gate) * up (Shazeer, "GLU variants improve transformer", 2020, equation 5).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/exp.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

namespace detail {
inline void check_swiglu(const char* who, Index rows, Index columns, Index half_rows, Index half_columns) {
  if (rows != half_rows || columns != 2 * half_columns)
    throw Error(concatenate(who, ": the gate and up matrix is ", rows, "x", columns, " and the gated one ", half_rows,
                            "x", half_columns, "; the first must have twice the columns of the second."));
}
}  // namespace detail

/// y = silu(gate) * up with x = (gate | up) [R, 2F], y [R, F], silu(g) = g / (1 + e^-g).
template <Scalar T>
void swiglu_forward(Host& device, ReadMatrix<T> x, Matrix<T> y) {
  detail::check_swiglu("swiglu_forward", x.rows(), x.columns(), y.rows(), y.columns());
  using A = Accumulator<T>;
  const Index width = y.columns();
  device.parallel_for(y.rows(), detail::grain_for(width * 8), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r)
      detail::map_row(
          width, y.row(r), [](A gate, A up) { return gate * logistic_of(gate) * up; }, x.row(r), x.row(r) + width);
  });
}

/// dx = (dy * up * silu'(gate) | dy * silu(gate)); overwrites dx [R, 2F], which may be x.
template <Scalar T>
void swiglu_backward(Host& device, ReadMatrix<T> x, ReadMatrix<T> dy, Matrix<T> dx) {
  detail::check_swiglu("swiglu_backward", x.rows(), x.columns(), dy.rows(), dy.columns());
  detail::check_same_shape("swiglu_backward", x, dx);
  using A = Accumulator<T>;
  const Index width = dy.columns();
  constexpr Index block = 64;
  device.parallel_for(dx.rows(), detail::grain_for(width * 12), [&](Range rows) {
    // Results wait here until the inputs of the block, which they may replace, have been read.
    alignas(64) std::array<A, static_cast<std::size_t>(block)> dgate;
    alignas(64) std::array<A, static_cast<std::size_t>(block)> dup;
    for (Index r = rows.begin; r < rows.end; ++r)
      for (Index first = 0; first < width; first += block) {
        const Index count = std::min(block, width - first);
        const T* const gate = x.row(r) + first;
        const T* const up = gate + width;
        const T* const gradient = dy.row(r) + first;
        T* const to = dx.row(r) + first;
        for (Index k = 0; k < count; ++k) {
          const A value = static_cast<A>(gate[k]);
          const A open = logistic_of(value);
          const A slope = static_cast<A>(gradient[k]) * open;
          dgate[static_cast<std::size_t>(k)] = slope * static_cast<A>(up[k]) * (1 + value * (1 - open));
          dup[static_cast<std::size_t>(k)] = slope * value;
        }
        for (Index k = 0; k < count; ++k) to[k] = static_cast<T>(dgate[static_cast<std::size_t>(k)]);
        for (Index k = 0; k < count; ++k) to[k + width] = static_cast<T>(dup[static_cast<std::size_t>(k)]);
      }
  });
}

}  // namespace dtrain::ops
