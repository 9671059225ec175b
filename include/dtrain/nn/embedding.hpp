// Embeddings of tokens and of positions.
#pragma once

#include <array>

#include "dtrain/nn/layer.hpp"
#include "dtrain/ops/host/embedding.hpp"

namespace dtrain::nn {

/// How a `TokenEmbedding` is made.
struct EmbeddingOptions {
  Initializer initializer{Initializer::Kind::normal, 0.02};
  /// Each tensor rank holds a multiple of this many rows; the vocabulary is padded to fit.
  Index vocabulary_multiple = 1;
};

/// y[r] = W[token[r]], W of [vocabulary, width]. Cut by vocabulary under tensor parallelism: a rank adds the rows it
/// holds, and zeros elsewhere, to a pending sum.
template <Index Vocabulary, Index Width, EmbeddingOptions Options = EmbeddingOptions{}>
struct TokenEmbedding {
  static_assert(Positive<Vocabulary> && Positive<Width>, "dtrain: an embedding needs a vocabulary and a width above 0");
  static constexpr Features input{};
  static constexpr Features output = features_of(Width);
  static constexpr Index vocabulary = Vocabulary;

  static constexpr LayoutRule layouts(Layout, TensorAxis) { return {Layout::invariant, Layout::partial, Cut::rows}; }
  static constexpr std::array<Parameter, 1> parameters(LayoutRule rule) {
    return {Parameter{.name = "weight",
                      .rows = vocabulary_of(Vocabulary, Options.vocabulary_multiple),
                      .columns = output,
                      .cut = rule.cut,
                      .initializer = Options.initializer,
                      .decay = true}};
  }
  static constexpr double flops_per_row(Index) { return 0.0; }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T>, Matrix<T> y) {
    ops::embedding_forward(site.device(), site.tokens(), site.template parameter<0>(),
                           site.template parameter_range<0>(), y);
  }
  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    ops::embedding_backward(site.device(), site.tokens(), dy, site.template parameter_range<0>(),
                            site.template gradient<0>());
  }
};

/// y[r] = x[r] + W[position of r], W of [context, width].
template <Index Context, Index Width, EmbeddingOptions Options = EmbeddingOptions{}>
struct PositionEmbedding {
  static_assert(Positive<Context> && Positive<Width>, "dtrain: an embedding needs a context and a width above 0");
  static constexpr Features input = features_of(Width);
  static constexpr Features output = features_of(Width);
  static constexpr bool in_place = true;
  static constexpr RowUse row_use = RowUse::placed;
  static constexpr bool identity_gradient = true;
  static constexpr Index max_context = Context;

  static constexpr LayoutRule layouts(Layout, TensorAxis tensor) { return row_wise(tensor); }
  static constexpr std::array<Parameter, 1> parameters(LayoutRule) {
    return {Parameter{.name = "weight",
                      .rows = features_of(Context),
                      .columns = input,
                      .initializer = Options.initializer,
                      .decay = true}};
  }
  static constexpr double flops_per_row(Index) { return double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    ops::position_forward(site.device(), x, site.template parameter<0>(), site.rows().first, site.rows().context, y);
  }
  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    ops::position_backward(site.device(), dy, site.rows().first, site.rows().context, site.template gradient<0>());
  }
};

}  // namespace dtrain::nn
