// Normalisation of rows: LayerNorm and RMSNorm.
#pragma once

#include <array>

#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/layer_norm.hpp"
#include "dtrain/ops/host/rms_norm.hpp"

namespace dtrain::nn {

struct NormOptions {
  double epsilon = 1e-5;
};

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, over each row (J. L. Ba et al., 2016, eq. 3 and 4).
template <Index Width, NormOptions Options = NormOptions{}>
struct LayerNorm {
  static_assert(Positive<Width>, "dtrain: a norm needs a width above 0");
  static constexpr Features input = features_of(Width);
  static constexpr Features output = features_of(Width);
  static constexpr bool saves_input = true;
  static constexpr LayerKind kind = LayerKind::norm;
  static constexpr RowUse row_use = RowUse::alone;
  static constexpr Index saved_per_row(TensorAxis) { return 2; }

  static constexpr LayoutRule layouts(Layout, TensorAxis tensor) { return row_wise(tensor); }
  static constexpr std::array<Parameter, 2> parameters(LayoutRule) {
    return {Parameter{.name = "weight", .rows = input, .initializer = constant(1.0)},
            Parameter{.name = "bias", .rows = input, .initializer = constant(0.0)}};
  }
  static constexpr double flops_per_row(Index) { return 8.0 * double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::layer_norm_forward(site.device(), x, site.template parameter<0>().flat(), site.template parameter<1>().flat(),
                            Accumulator<T>(Options.epsilon), y, statistics(site, x.rows()));
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::layer_norm_backward_input(site.device(), site.input(), site.template parameter<0>().flat(),
                                   read(statistics(site, dy.rows())), dy, dx);
  }
  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    ops::layer_norm_backward_weight(site.device(), site.input(), read(statistics(site, dy.rows())), dy,
                                    site.template gradient<0>().flat(), site.template gradient<1>().flat());
  }

 private:
  template <class Site>
  static auto statistics(const Site& site, Index rows) {
    return Matrix(site.saved(), rows, Index{2});
  }
  template <class A>
  static Matrix<const A> read(Matrix<A> matrix) {
    return matrix;
  }
};

/// y = x / sqrt(mean(x^2) + epsilon) * weight, over each row (B. Zhang and R. Sennrich, 2019, eq. 4).
template <Index Width, NormOptions Options = NormOptions{}>
struct RmsNorm {
  static_assert(Positive<Width>, "dtrain: a norm needs a width above 0");
  static constexpr Features input = features_of(Width);
  static constexpr Features output = features_of(Width);
  static constexpr bool saves_input = true;
  static constexpr LayerKind kind = LayerKind::norm;
  static constexpr RowUse row_use = RowUse::alone;
  static constexpr Index saved_per_row(TensorAxis) { return 1; }

  static constexpr LayoutRule layouts(Layout, TensorAxis tensor) { return row_wise(tensor); }
  static constexpr std::array<Parameter, 1> parameters(LayoutRule) {
    return {Parameter{.name = "weight", .rows = input, .initializer = constant(1.0)}};
  }
  static constexpr double flops_per_row(Index) { return 4.0 * double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::rms_norm_forward(site.device(), x, site.template parameter<0>().flat(), Accumulator<T>(Options.epsilon), y,
                          statistics(site, x.rows()));
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::rms_norm_backward_input(site.device(), site.input(), site.template parameter<0>().flat(),
                                 read(statistics(site, dy.rows())), dy, dx);
  }
  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    ops::rms_norm_backward_weight(site.device(), site.input(), read(statistics(site, dy.rows())), dy,
                                  site.template gradient<0>().flat());
  }

 private:
  template <class Site>
  static auto statistics(const Site& site, Index rows) {
    return Matrix(site.saved(), rows, Index{1});
  }
  template <class A>
  static Matrix<const A> read(Matrix<A> matrix) {
    return matrix;
  }
};

}  // namespace dtrain::nn
