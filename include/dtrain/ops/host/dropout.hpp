// Dropout (Srivastava et al., 2014) whose mask is regenerated from element indices and never stored.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/lanes.hpp"
#include "dtrain/ops/host/random_mask.hpp"

namespace dtrain::ops {

/// y = x / (1 - p) where the element is kept, 0 where it is dropped; y may be x. The view x is the part of a global
/// matrix of `total_columns` columns that begins at (first_row, first_column); element (r, c) of x is number
/// (first_row + r) * total_columns + first_column + c of `stream` and kept when that uniform number is >= p. Any
/// layout of the global matrix over ranks therefore drops the same elements.
/// Throws Error when p is outside [0, 1).
template <Scalar T>
void dropout_forward(Host& device, double probability, RandomStream stream, ReadMatrix<T> x, Matrix<T> y,
                     Index first_row, Index first_column, Index total_columns) {
  using A = Accumulator<T>;
  detail::check_probability("dropout_forward", probability);
  detail::check_same_shape("dropout_forward", x, y);
  if (first_row < 0 || first_column < 0 || first_column + y.columns() > total_columns)
    throw Error(concatenate("dropout_forward: ", y.columns(), " columns from column ", first_column, " and row ",
                            first_row, " do not lie in a matrix of ", total_columns, " columns."));
  const detail::RandomMask mask(stream, probability);
  const bool drops = probability > 0.0;
  device.parallel_for(y.rows(), detail::grain_for(y.columns() * (drops ? 12 : 1)), [&](Range rows) {
    constexpr Index block = 256;
    alignas(64) std::array<A, static_cast<std::size_t>(block)> factors;
    factors.fill(A{1});
    for (Index r = rows.begin; r < rows.end; ++r)
      for (Index c = 0; c < y.columns(); c += block) {
        const Index count = std::min(block, y.columns() - c);
        if (drops)
          mask.fill(static_cast<std::uint64_t>((first_row + r) * total_columns + first_column + c), count,
                    factors.data());
        detail::map_row(
            count, y.row(r) + c, [](A value, A factor) { return value * factor; }, x.row(r) + c, factors.data());
      }
  });
}

/// dx = dy through the same mask; dx may be dy.
template <Scalar T>
void dropout_backward(Host& device, double probability, RandomStream stream, ReadMatrix<T> dy, Matrix<T> dx,
                      Index first_row, Index first_column, Index total_columns) {
  dropout_forward<T>(device, probability, stream, dy, dx, first_row, first_column, total_columns);
}

}  // namespace dtrain::ops
