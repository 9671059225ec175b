// Root-mean-square normalisation over the features of each row (Zhang and Sennrich, 2019, equation 4).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

/// y = x rstd gamma with rstd = 1 / sqrt(mean(x^2) + epsilon). x, y [R, W]; gamma [W]; statistics [R, 1] receives
/// rstd for the backward pass. y may be x.
template <Scalar T>
void rms_norm_forward(Host& device, ReadMatrix<T> x, ReadSpan<T> gamma, Accumulator<T> epsilon, Matrix<T> y,
                      std::type_identity_t<Matrix<Accumulator<T>>> statistics) {
  using A = Accumulator<T>;
  detail::check_same_shape("rms_norm_forward", x, y);
  const Index width = x.columns();
  detail::check_length("rms_norm_forward", "gamma", gamma.size(), width);
  device.parallel_for(x.rows(), detail::grain_for(width * 2), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const from = x.row(r);
      const A mean_square =
          detail::lane_sum<A>(width, [from](Index c) { return static_cast<A>(from[c]) * static_cast<A>(from[c]); }) /
          static_cast<A>(width);
      const A rstd = 1 / std::sqrt(mean_square + epsilon);
      statistics(r, 0) = rstd;
      detail::map_row(width, y.row(r), [rstd](A value, A scale) { return value * rstd * scale; }, from, gamma.data());
    }
  });
}

/// dx = rstd (g - n mean(g n)) with g = dy gamma and n = x rstd; overwrites dx, which may be dy.
template <Scalar T>
void rms_norm_backward_input(Host& device, ReadMatrix<T> x, ReadSpan<T> gamma,
                             std::type_identity_t<Matrix<const Accumulator<T>>> statistics, ReadMatrix<T> dy,
                             Matrix<T> dx) {
  using A = Accumulator<T>;
  detail::check_same_shape("rms_norm_backward_input", x, dx);
  detail::check_same_shape("rms_norm_backward_input", dy, dx);
  const Index width = x.columns();
  detail::check_length("rms_norm_backward_input", "gamma", gamma.size(), width);
  device.parallel_for(x.rows(), detail::grain_for(width * 3), [&](Range rows) {
    const T* const scale = gamma.data();
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const from = x.row(r);
      const T* const gradient = dy.row(r);
      const A rstd = statistics(r, 0);
      const A product = detail::lane_sum<A>(width, [=](Index c) {
        return static_cast<A>(gradient[c]) * static_cast<A>(scale[c]) * static_cast<A>(from[c]);
      });
      const A slope = product * rstd * rstd / static_cast<A>(width);
      detail::map_row(
          width, dx.row(r), [=](A value, A dvalue, A factor) { return rstd * (dvalue * factor - value * slope); }, from,
          gradient, scale);
    }
  });
}

/// dgamma += sum over rows of dy x rstd. Columns are shared out over threads, so the order of each sum is fixed.
template <class D, Scalar G>
void rms_norm_backward_weight(Host& device, ReadMatrix<ValueOf<D>> x,
                              std::type_identity_t<Matrix<const Accumulator<ValueOf<D>>>> statistics, Matrix<D> dy,
                              std::span<G> dgamma) {
  using T = ValueOf<D>;
  using A = Accumulator<T>;
  detail::check_same_shape("rms_norm_backward_weight", x, dy);
  detail::check_length("rms_norm_backward_weight", "dgamma", dgamma.size(), x.columns());
  constexpr Index tile = 64;
  const Index tiles = (x.columns() + tile - 1) / tile;
  device.parallel_for(tiles, detail::grain_for(x.rows() * tile), [&](Range range) {
    for (Index t = range.begin; t < range.end; ++t) {
      const Index first = t * tile;
      const Index width = std::min(tile, x.columns() - first);
      std::array<A, static_cast<std::size_t>(tile)> sum{};
      const auto add_row = [&](Index r, Index count) __attribute__((always_inline)) {
        const T* const from = x.row(r) + first;
        const T* const gradient = dy.row(r) + first;
        const A rstd = statistics(r, 0);
        for (Index c = 0; c < count; ++c)
          sum[static_cast<std::size_t>(c)] += static_cast<A>(gradient[c]) * (static_cast<A>(from[c]) * rstd);
      };
      // A count known to the compiler keeps the sums of a whole tile in registers.
      if (width == tile)
        for (Index r = 0; r < x.rows(); ++r) add_row(r, tile);
      else
        for (Index r = 0; r < x.rows(); ++r) add_row(r, width);
      for (Index c = 0; c < width; ++c)
        detail::add_to(dgamma[static_cast<std::size_t>(first + c)], sum[static_cast<std::size_t>(c)]);
    }
  });
}

}  // namespace dtrain::ops
