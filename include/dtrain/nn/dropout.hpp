// Dropout whose mask is a function of the element's place in the global batch.
#pragma once

#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/dropout.hpp"

namespace dtrain::nn {

/// A probability as a template argument (clang 16 takes no bare floating-point ones).
struct Probability {
  double value = 0.0;
};

/// Dropout leaves something: the probability lies in [0, 1).
template <Probability Drop>
concept DropsSome = Drop.value >= 0.0 && Drop.value < 1.0;

/// Sets elements to zero with a probability and scales the others by 1/(1 - probability), in training only. The mask is
/// drawn again in the backward pass instead of being kept.
template <Index Width, Probability Drop>
struct Dropout {
  static_assert(DropsSome<Drop>, "dtrain: a dropout probability lies in [0, 1)");
  static constexpr Features input = features_of(Width);
  static constexpr Features output = features_of(Width);
  static constexpr bool in_place = true;
  static constexpr RowUse row_use = RowUse::placed;
  /// Nothing is left of a dropout that drops nothing.
  static constexpr bool vanishes = Drop.value == 0.0;

  static constexpr LayoutRule layouts(Layout, TensorAxis tensor) { return row_wise(tensor); }
  static constexpr auto parameters(LayoutRule) { return no_parameters; }
  static constexpr double flops_per_row(Index) { return double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::dropout_forward(site.device(), site.training() ? Drop.value : 0.0, site.random(), x, y, site.rows().first,
                         Index{0}, Width);
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::dropout_backward(site.device(), site.training() ? Drop.value : 0.0, site.random(), dy, dx, site.rows().first,
                          Index{0}, Width);
  }
};

}  // namespace dtrain::nn
