// Causal self-attention over fused queries, keys and values, and rotary positions.
#pragma once

#include <array>
#include <span>

#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/attention.hpp"
#include "dtrain/ops/host/copy.hpp"
#include "dtrain/ops/host/rotary.hpp"

namespace dtrain::nn {

/// The heads of an attention.
struct AttentionOptions {
  Index heads = 1;
  Index key_value_heads = 1;
  Index head_size = 1;
  /// Probability of dropping an attention weight in training.
  double dropout = 0.0;

  [[nodiscard]] constexpr Features input() const { return query_key_value(heads, key_value_heads, head_size); }
  [[nodiscard]] constexpr Features output() const { return heads_of(heads, head_size); }
};

/// A width is a whole number of heads.
template <Index Width, Index Heads>
concept WidthIsHeads = Heads > 0 && Width > 0 && Width % Heads == 0;

namespace detail {

/// Attention and rotary positions work on whole heads wherever the tensor axis is above 1.
template <AttentionOptions Options, int Degree>
consteval void check_heads() {
  static_assert(Positive<Options.heads> && Positive<Options.head_size>,
                "dtrain: attention needs a number of heads and a head size above 0");
  static_assert(QueryGroupsDivide<Options.heads, Options.key_value_heads>,
                "dtrain: the key/value heads of an attention do not divide its query heads");
  static_assert(HeadsDivide<Options.heads, Degree>,
                "dtrain: the attention heads do not divide over the tensor-parallel ranks");
  static_assert(KeyValueHeadsDivide<Options.key_value_heads, Degree>,
                "dtrain: the key/value heads neither divide over the tensor-parallel ranks nor divide their number");
}

constexpr LayoutRule by_heads(Layout) { return {Layout::split_features, Layout::split_features, Cut::none}; }

}  // namespace detail

/// softmax(q k^T / sqrt(head_size), causal) v, per head; the input holds q | k | v side by side.
template <AttentionOptions Options>
struct CausalSelfAttention {
  static_assert(DropsSome<Probability{Options.dropout}>, "dtrain: a dropout probability lies in [0, 1)");
  static constexpr Features input = Options.input();
  static constexpr Features output = Options.output();
  static constexpr bool saves_input = true;
  static constexpr bool saves_output = true;
  static constexpr LayerKind kind = LayerKind::attention;
  /// Log of the softmax's sum, per head.
  static constexpr Index saved_per_row(TensorAxis tensor) { return Options.heads / tensor.degree; }

  static constexpr LayoutRule layouts(Layout incoming, TensorAxis) { return detail::by_heads(incoming); }
  static constexpr auto parameters(LayoutRule) { return no_parameters; }
  /// Scores and values, the causal half.
  static constexpr double flops_per_row(Index context) {
    return 2.0 * double(context + 1) * double(Options.heads * Options.head_size);
  }

  template <TensorAxis Tensor, LayoutRule Rule>
  static consteval void check() {
    detail::check_heads<Options, Tensor.degree>();
  }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    const auto rows = site.rows();
    ops::attention_forward(site.device(), shape(site), x, y, log_sum_exp(site, x.rows()), site.random(),
                           rows.first / rows.context, first_head(site), Options.heads);
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    const auto rows = site.rows();
    const auto sums = log_sum_exp(site, dy.rows());
    ops::attention_backward(site.device(), shape(site), site.input(), site.output(),
                            std::span<const typename decltype(sums)::value_type>(sums), dy, dx, site.random(),
                            rows.first / rows.context, first_head(site), Options.heads);
  }

 private:
  template <class Site>
  static ops::AttentionShape shape(const Site& site) {
    return {.heads = output.local(Site::degree) / Options.head_size,
            .key_value_heads = Options.input().parts[1].local(Site::degree) / Options.head_size,
            .head_size = Options.head_size,
            .context = site.rows().context,
            .dropout = site.training() ? Options.dropout : 0.0};
  }
  template <class Site>
  static auto log_sum_exp(const Site& site, Index rows) {
    return std::span(site.saved(), static_cast<std::size_t>(rows * (Options.heads / Site::degree)));
  }
  template <class Site>
  static Index first_head(const Site& site) {
    return site.unit_range(output.parts[0]).begin;
  }
};

/// How far rotary positions turn.
struct RotaryOptions {
  double theta = 10000.0;
};

/// Rotates queries and keys by their position, values pass (J. Su et al., "RoFormer", 2021, eq. 34; dimension i is
/// paired with i + head_size/2). Works on the fused input of `CausalSelfAttention`.
template <AttentionOptions Options, RotaryOptions Rotary = RotaryOptions{}>
struct RotaryPositions {
  static constexpr Features input = Options.input();
  static constexpr Features output = Options.input();
  static constexpr bool in_place = true;
  static constexpr RowUse row_use = RowUse::placed;

  static constexpr LayoutRule layouts(Layout incoming, TensorAxis) { return detail::by_heads(incoming); }
  static constexpr auto parameters(LayoutRule) { return no_parameters; }
  static constexpr double flops_per_row(Index) {
    return 3.0 * double((Options.heads + Options.key_value_heads) * Options.head_size);
  }
  /// Cosine and sine of every position and pair: [context, head_size/2, 2].
  static constexpr Index constants(Index context, TensorAxis) { return context * Options.head_size; }
  template <class A>
  static void fill_constants(Index context, TensorAxis, std::span<A> table) {
    ops::rotary_table(context, Options.head_size, Rotary.theta, table);
  }

  template <TensorAxis Tensor, LayoutRule Rule>
  static consteval void check() {
    static_assert(Even<Options.head_size>, "dtrain: rotary positions need an even head size");
    detail::check_heads<Options, Tensor.degree>();
  }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    turn(site, x, y, [&](auto&&... arguments) { ops::rotary_forward(site.device(), arguments...); });
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    turn(site, dy, dx, [&](auto&&... arguments) { ops::rotary_backward(site.device(), arguments...); });
  }

 private:
  template <class Site, class T, class Rotation>
  static void turn(const Site& site, Matrix<const T> x, Matrix<T> y, Rotation rotation) {
    const Index turned = (input.parts[0].local(Site::degree) + input.parts[1].local(Site::degree));
    const Range columns{0, turned};
    rotation(x.column_range(columns), turned / Options.head_size, Options.head_size, site.constants(),
             site.rows().first, site.rows().context, y.column_range(columns));
    if (x.data() == y.data()) return;
    const Range values{turned, x.columns()};
    ops::copy_matrix(site.device(), x.column_range(values), y.column_range(values));
  }
};

}  // namespace dtrain::nn
