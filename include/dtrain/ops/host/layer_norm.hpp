// Layer normalisation over the features of each row (Ba, Kiros and Hinton, 2016).
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

/// y = (x - mean) rstd gamma + beta with rstd = 1 / sqrt(variance + epsilon), the variance being that of the row.
/// x, y [R, W]; gamma, beta [W]; statistics [R, 2] receives mean and rstd for the backward pass. y may be x.
template <Scalar T>
void layer_norm_forward(Host& device, ReadMatrix<T> x, ReadSpan<T> gamma, ReadSpan<T> beta, Accumulator<T> epsilon,
                        Matrix<T> y, std::type_identity_t<Matrix<Accumulator<T>>> statistics) {
  using A = Accumulator<T>;
  detail::check_same_shape("layer_norm_forward", x, y);
  const Index width = x.columns();
  detail::check_length("layer_norm_forward", "gamma", gamma.size(), width);
  detail::check_length("layer_norm_forward", "beta", beta.size(), width);
  device.parallel_for(x.rows(), detail::grain_for(width * 2), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const from = x.row(r);
      const A mean =
          detail::lane_sum<A>(width, [from](Index c) { return static_cast<A>(from[c]); }) / static_cast<A>(width);
      // The second pass subtracts the mean first: E[x^2] - mean^2 cancels when the mean is large.
      const A variance = detail::lane_sum<A>(width,
                                             [from, mean](Index c) {
                                               const A centred = static_cast<A>(from[c]) - mean;
                                               return centred * centred;
                                             }) /
                         static_cast<A>(width);
      const A rstd = 1 / std::sqrt(variance + epsilon);
      statistics(r, 0) = mean;
      statistics(r, 1) = rstd;
      detail::map_row(
          width, y.row(r), [mean, rstd](A value, A scale, A shift) { return (value - mean) * rstd * scale + shift; },
          from, gamma.data(), beta.data());
    }
  });
}

/// dx = rstd (g - mean(g) - n mean(g n)) with g = dy gamma and n = (x - mean) rstd; overwrites dx, which may be dy.
template <Scalar T>
void layer_norm_backward_input(Host& device, ReadMatrix<T> x, ReadSpan<T> gamma,
                               std::type_identity_t<Matrix<const Accumulator<T>>> statistics, ReadMatrix<T> dy,
                               Matrix<T> dx) {
  using A = Accumulator<T>;
  detail::check_same_shape("layer_norm_backward_input", x, dx);
  detail::check_same_shape("layer_norm_backward_input", dy, dx);
  const Index width = x.columns();
  detail::check_length("layer_norm_backward_input", "gamma", gamma.size(), width);
  device.parallel_for(x.rows(), detail::grain_for(width * 3), [&](Range rows) {
    const T* const scale = gamma.data();
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const from = x.row(r);
      const T* const gradient = dy.row(r);
      const A mean = statistics(r, 0);
      const A rstd = statistics(r, 1);
      const A sum =
          detail::lane_sum<A>(width, [=](Index c) { return static_cast<A>(gradient[c]) * static_cast<A>(scale[c]); });
      const A product = detail::lane_sum<A>(width, [=](Index c) {
        return static_cast<A>(gradient[c]) * static_cast<A>(scale[c]) * (static_cast<A>(from[c]) - mean);
      });
      const A mean_gradient = sum / static_cast<A>(width);
      const A slope = product * rstd * rstd / static_cast<A>(width);
      detail::map_row(
          width, dx.row(r),
          [=](A value, A dvalue, A factor) {
            return rstd * (dvalue * factor - mean_gradient - (value - mean) * slope);
          },
          from, gradient, scale);
    }
  });
}

/// dgamma += sum over rows of dy n, dbeta += sum over rows of dy, with n = (x - mean) rstd. Columns are shared out
/// over threads, so the order of each sum is fixed.
template <class D, Scalar G>
void layer_norm_backward_weight(Host& device, ReadMatrix<ValueOf<D>> x,
                                std::type_identity_t<Matrix<const Accumulator<ValueOf<D>>>> statistics, Matrix<D> dy,
                                std::span<G> dgamma, std::type_identity_t<std::span<G>> dbeta) {
  using T = ValueOf<D>;
  using A = Accumulator<T>;
  detail::check_same_shape("layer_norm_backward_weight", x, dy);
  detail::check_length("layer_norm_backward_weight", "dgamma", dgamma.size(), x.columns());
  detail::check_length("layer_norm_backward_weight", "dbeta", dbeta.size(), x.columns());
  constexpr Index tile = 32;
  const Index tiles = (x.columns() + tile - 1) / tile;
  device.parallel_for(tiles, detail::grain_for(x.rows() * tile), [&](Range range) {
    for (Index t = range.begin; t < range.end; ++t) {
      const Index first = t * tile;
      const Index width = std::min(tile, x.columns() - first);
      std::array<A, static_cast<std::size_t>(tile)> scale_sum{};
      std::array<A, static_cast<std::size_t>(tile)> shift_sum{};
      const auto add_row = [&](Index r, Index count) __attribute__((always_inline)) {
        const T* const from = x.row(r) + first;
        const T* const gradient = dy.row(r) + first;
        const A mean = statistics(r, 0);
        const A rstd = statistics(r, 1);
        for (Index c = 0; c < count; ++c) {
          const A dvalue = static_cast<A>(gradient[c]);
          scale_sum[static_cast<std::size_t>(c)] += dvalue * ((static_cast<A>(from[c]) - mean) * rstd);
          shift_sum[static_cast<std::size_t>(c)] += dvalue;
        }
      };
      // A count known to the compiler keeps the sums of a whole tile in registers.
      if (width == tile)
        for (Index r = 0; r < x.rows(); ++r) add_row(r, tile);
      else
        for (Index r = 0; r < x.rows(); ++r) add_row(r, width);
      for (Index c = 0; c < width; ++c) {
        detail::add_to(dgamma[static_cast<std::size_t>(first + c)], scale_sum[static_cast<std::size_t>(c)]);
        detail::add_to(dbeta[static_cast<std::size_t>(first + c)], shift_sum[static_cast<std::size_t>(c)]);
      }
    }
  });
}

}  // namespace dtrain::ops
