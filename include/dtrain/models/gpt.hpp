// GPT: learned positions, LayerNorm, GELU (A. Radford et al., "Language models are unsupervised multitask learners").
#pragma once

#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"

namespace dtrain::models {

/// The sizes of a `Gpt`.
struct GptShape {
  int vocab = 256;
  int context = 256;
  int width = 384;
  int heads = 6;
  int layers = 6;
  /// 0: as many as heads.
  int key_value_heads = 0;
  /// Width inside the MLP; 0: four times the width.
  int hidden = 0;
  double dropout = 0.0;
  bool bias = true;
  /// The output head uses the token embedding's weight.
  bool tied = true;
  nn::GeluKind gelu = nn::GeluKind::tanh_approximation;
  /// Each tensor rank holds a multiple of this many rows of the vocabulary.
  int vocabulary_multiple = 1;

  [[nodiscard]] constexpr Index mlp_width() const { return hidden > 0 ? hidden : Index{4} * width; }
  [[nodiscard]] constexpr nn::AttentionOptions attention() const {
    return {.heads = heads,
            .key_value_heads = key_value_heads > 0 ? key_value_heads : heads,
            .head_size = heads > 0 ? width / heads : 0,
            .dropout = dropout};
  }
};

namespace detail {

// Start of GPT-2: deviation 0.02, and 0.02/sqrt(2 layers) for the layers that add to the residual stream.
constexpr double root(double value) {
  double guess = value > 1.0 ? value : 1.0;
  for (int i = 0; i < 64; ++i) guess = 0.5 * (guess + value / guess);
  return guess;
}

template <GptShape Shape>
struct GptParts {
  static_assert(nn::WidthIsHeads<Shape.width, Shape.heads>,
                "dtrain: the width of a Gpt is not a whole number of attention heads");
  // Functions, because nvcc spells a named constant of a template by its name, with arguments that it loses.
  static constexpr nn::LinearOptions inner() { return {.bias = Shape.bias, .initializer = nn::normal(0.02)}; }
  static constexpr nn::LinearOptions outer() {
    return {.bias = Shape.bias, .initializer = nn::normal(0.02 / root(2.0 * Shape.layers))};
  }
  static constexpr nn::LinearOptions head() { return {.bias = false, .initializer = nn::normal(0.02)}; }
  static constexpr nn::EmbeddingOptions tokens() { return {.vocabulary_multiple = Shape.vocabulary_multiple}; }
  static constexpr nn::Features vocabulary() { return nn::vocabulary_of(Shape.vocab, Shape.vocabulary_multiple); }
  using Drop = nn::Dropout<Shape.width, nn::Probability{Shape.dropout}>;

  using Attention = nn::Sequence<nn::Named<"qkv", nn::Linear<Shape.width, Shape.attention().input(), inner()>>,
                                 nn::CausalSelfAttention<Shape.attention()>,
                                 nn::Named<"output", nn::Linear<Shape.attention().output(), Shape.width, outer()>>>;
  using Mlp = nn::Sequence<nn::Named<"up", nn::Linear<Shape.width, Shape.mlp_width(), inner()>>,
                           nn::Gelu<Shape.mlp_width(), Shape.gelu>,
                           nn::Named<"down", nn::Linear<Shape.mlp_width(), Shape.width, outer()>>>;
  using Block = nn::Sequence<
      nn::Residual<nn::Named<"attention_norm", nn::LayerNorm<Shape.width>>, nn::Named<"attention", Attention>, Drop>,
      nn::Residual<nn::Named<"mlp_norm", nn::LayerNorm<Shape.width>>, nn::Named<"mlp", Mlp>, Drop>>;
  using Head = std::conditional_t<Shape.tied, nn::Linear<Shape.width, vocabulary(), head(), "token_embedding.weight">,
                                  nn::Linear<Shape.width, vocabulary(), head()>>;
  using Model = nn::Sequence<nn::Named<"token_embedding", nn::TokenEmbedding<Shape.vocab, Shape.width, tokens()>>,
                             nn::Named<"position_embedding", nn::PositionEmbedding<Shape.context, Shape.width>>, Drop,
                             nn::Named<"blocks", nn::Repeat<Shape.layers, Block>>,
                             nn::Named<"final_norm", nn::LayerNorm<Shape.width>>, nn::Named<"head", Head>>;
};

}  // namespace detail

/// Token ids to logits of [rows, vocab].
template <GptShape Shape>
using Gpt = typename detail::GptParts<Shape>::Model;

}  // namespace dtrain::models
