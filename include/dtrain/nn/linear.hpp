// The linear layer, y = x W^T + b, with W of [output, input] features.
#pragma once

#include <array>
#include <span>

#include "dtrain/core/fixed_string.hpp"
#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/linear.hpp"

namespace dtrain::nn {

/// How a `Linear` is made.
struct LinearOptions {
  bool bias = true;
  /// False: every tensor rank holds and computes the whole layer (small output layers).
  bool divide = true;
  /// Start of the weight; a scale of 0 stands for uniform in +-1/sqrt(input), PyTorch's own start.
  Initializer initializer{Initializer::Kind::uniform, 0.0};
};

/// y = x W^T + b. `In` and `Out` are widths, as numbers or as `Features`.
///
/// Under tensor parallelism it is cut by output features when it follows the residual stream, and by input features,
/// with a pending sum, when it follows features that are cut already (M. Shoeybi et al., "Megatron-LM", 2019, section
/// 3). The bias of the second kind is added behind the sum. With `Tie` it uses another parameter's storage by path.
template <auto In, auto Out, LinearOptions Options = LinearOptions{}, FixedString Tie = "">
struct Linear {
  static constexpr Features input = features_of(In);
  static constexpr Features output = features_of(Out);
  static constexpr bool saves_input = true;
  static constexpr RowUse row_use = RowUse::alone;

  static constexpr LayoutRule layouts(Layout incoming, TensorAxis tensor) {
    if (!Options.divide) return row_wise(tensor);
    if (incoming == Layout::split_features) return {Layout::split_features, Layout::partial, Cut::columns};
    return {Layout::replicated, Layout::split_features, Cut::rows};
  }

  static constexpr auto parameters(LayoutRule rule) {
    const Parameter weight{.name = "weight",
                           .rows = output,
                           .columns = input,
                           .cut = rule.cut,
                           .initializer = weight_initializer(),
                           .decay = true,
                           .tie = Tie.view()};
    if constexpr (Options.bias) {
      const bool sum_pending = rule.out == Layout::partial;
      return std::array{weight, Parameter{.name = "bias",
                                          .rows = output,
                                          .cut = rule.cut == Cut::rows ? Cut::rows : Cut::none,
                                          .initializer = constant(0.0),
                                          .after_sum = sum_pending}};
    } else {
      return std::array{weight};
    }
  }

  static constexpr double flops_per_row(Index) { return 2.0 * double(input.whole()) * double(output.whole()); }

  template <TensorAxis Tensor, LayoutRule Rule>
  static consteval void check() {
    check_sizes<Tensor.degree, input.whole(), output.whole(), Rule.cut>();
  }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    std::span<const T> bias{};
    if constexpr (Options.bias && Site::rule.out != Layout::partial) bias = site.template parameter<1>().flat();
    ops::linear_forward(site.device(), x, site.template parameter<0>(), bias, y);
  }

  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    ops::linear_backward_input(site.device(), dy, site.template parameter<0>(), dx);
  }

  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    ops::linear_backward_weight(site.device(), site.input(), dy, site.template gradient<0>());
    if constexpr (Options.bias && Site::rule.out != Layout::partial)
      ops::bias_backward(site.device(), dy, site.template gradient<1>().flat());
  }

  template <class Site, class T>
  static void forward_after_sum(const Site& site, Matrix<T> y)
    requires(Options.bias)
  {
    ops::bias_forward(site.device(), y, site.template parameter<1>().flat());
  }

  template <class Site, class T>
  static void backward_after_sum(const Site& site, Matrix<const T> dy)
    requires(Options.bias)
  {
    ops::bias_backward(site.device(), dy, site.template gradient<1>().flat());
  }

 private:
  static constexpr Initializer weight_initializer() {
    if (Options.initializer.scale != 0.0) return Options.initializer;
    return uniform(inverse_root(double(input.whole())));
  }
  // Newton's iteration: std::sqrt is not constexpr in C++20.
  static constexpr double inverse_root(double value) {
    double root = value > 1.0 ? value / 2.0 : 1.0;
    for (int i = 0; i < 64; ++i) root = 0.5 * (root + value / root);
    return 1.0 / root;
  }
  template <int Degree, Index InputWidth, Index OutputWidth, Cut By>
  static consteval void check_sizes() {
    static_assert(Positive<InputWidth> && Positive<OutputWidth>, "dtrain: a linear layer needs widths above 0");
    if constexpr (By == Cut::rows && !output.divides(Degree))
      static_assert(Divides<OutputWidth, Degree>,
                    "dtrain: the output features of a linear layer do not divide over the tensor-parallel ranks");
    if constexpr (By == Cut::columns)
      static_assert(NotCopied<input.replicated(Degree), Degree>,
                    "dtrain: a linear layer cannot sum over features that several tensor-parallel ranks hold alike");
    if constexpr (By == Cut::columns && !input.divides(Degree))
      static_assert(Divides<InputWidth, Degree>,
                    "dtrain: the input features of a linear layer do not divide over the tensor-parallel ranks");
  }
};

}  // namespace dtrain::nn
