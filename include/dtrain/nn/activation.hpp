// Activation functions: GELU and SwiGLU.
#pragma once

#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/gelu.hpp"
#include "dtrain/ops/host/swiglu.hpp"

namespace dtrain::nn {

using ops::GeluKind;

/// y = x Phi(x), exactly or by the tanh approximation (D. Hendrycks and K. Gimpel, 2016, section 2).
template <Index Width, GeluKind Kind = GeluKind::tanh_approximation>
struct Gelu {
  static constexpr Features input = features_of(Width);
  static constexpr Features output = features_of(Width);
  static constexpr bool saves_input = true;
  static constexpr LayerKind kind = LayerKind::activation;
  static constexpr RowUse row_use = RowUse::alone;

  static constexpr LayoutRule layouts(Layout incoming, TensorAxis tensor) { return element_wise(incoming, tensor); }
  static constexpr auto parameters(LayoutRule) { return no_parameters; }
  static constexpr double flops_per_row(Index) { return 8.0 * double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::gelu_forward(site.device(), Kind, x, y);
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::gelu_backward(site.device(), Kind, site.input(), dy, dx);
  }
};

/// y = silu(gate) * up, with gate and up fused side by side in the input (N. Shazeer, 2020, eq. 6 without bias).
template <Index Width>
struct SwiGlu {
  static constexpr Features input = fused(FeaturePart{.units = Width}, FeaturePart{.units = Width});
  static constexpr Features output = features_of(Width);
  static constexpr bool saves_input = true;
  static constexpr LayerKind kind = LayerKind::activation;
  static constexpr RowUse row_use = RowUse::alone;

  static constexpr LayoutRule layouts(Layout incoming, TensorAxis tensor) { return element_wise(incoming, tensor); }
  static constexpr auto parameters(LayoutRule) { return no_parameters; }
  static constexpr double flops_per_row(Index) { return 6.0 * double(Width); }

  template <TensorAxis Tensor, LayoutRule Rule>
  static consteval void check() {
    check_width<Width, Tensor.degree>();
  }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::swiglu_forward(site.device(), x, y);
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::swiglu_backward(site.device(), site.input(), dy, dx);
  }

 private:
  template <Index Units, int Degree>
  static consteval void check_width() {
    static_assert(Divides<Units, Degree>,
                  "dtrain: gate and up of a SwiGLU do not each divide over the tensor-parallel ranks");
  }
};

}  // namespace dtrain::nn
