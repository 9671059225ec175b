// Llama: rotary positions, RMSNorm, SwiGLU, grouped key/value heads (H. Touvron et al., 2023).
#pragma once

#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/attention.hpp"
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"

namespace dtrain::models {

/// The sizes of a `Llama`.
struct LlamaShape {
  int vocab = 256;
  int context = 256;
  int width = 384;
  int heads = 6;
  int layers = 6;
  /// 0: as many as heads.
  int key_value_heads = 0;
  /// Width inside the MLP; 0: eight thirds of the width, rounded up to a multiple of 16.
  int hidden = 0;
  /// Features of a head; 0: width / heads.
  int head_size = 0;
  double dropout = 0.0;
  double theta = 10000.0;
  double epsilon = 1e-5;
  bool tied = false;
  int vocabulary_multiple = 1;

  [[nodiscard]] constexpr Index mlp_width() const {
    return hidden > 0 ? hidden : round_up((Index{8} * width + 2) / 3, 16);
  }
  [[nodiscard]] constexpr nn::AttentionOptions attention() const {
    return {.heads = heads,
            .key_value_heads = key_value_heads > 0 ? key_value_heads : heads,
            .head_size = head_size > 0 ? head_size
                         : heads > 0   ? width / heads
                                       : 0,
            .dropout = dropout};
  }
};

/// The size of a head is given, or the width is a whole number of heads.
template <int HeadSize, int Width, int Heads>
concept HeadSizeKnown = bool(HeadSize > 0 || (Heads > 0 && Width > 0 && Width % Heads == 0));

namespace detail {

template <LlamaShape Shape>
struct LlamaParts {
  static_assert(HeadSizeKnown<Shape.head_size, Shape.width, Shape.heads>,
                "dtrain: the width of a Llama is not a whole number of attention heads, and no head size is given");
  // Functions, because nvcc spells a named constant of a template by its name, with arguments that it loses.
  static constexpr nn::LinearOptions linear() { return {.bias = false, .initializer = nn::normal(0.02)}; }
  static constexpr nn::EmbeddingOptions tokens() { return {.vocabulary_multiple = Shape.vocabulary_multiple}; }
  static constexpr nn::Features vocabulary() { return nn::vocabulary_of(Shape.vocab, Shape.vocabulary_multiple); }
  using Glu = nn::SwiGlu<Shape.mlp_width()>;
  using Norm = nn::RmsNorm<Shape.width, nn::NormOptions{Shape.epsilon}>;
  using Drop = nn::Dropout<Shape.width, nn::Probability{Shape.dropout}>;

  using Attention = nn::Sequence<nn::Named<"qkv", nn::Linear<Shape.width, Shape.attention().input(), linear()>>,
                                 nn::RotaryPositions<Shape.attention(), nn::RotaryOptions{Shape.theta}>,
                                 nn::CausalSelfAttention<Shape.attention()>,
                                 nn::Named<"output", nn::Linear<Shape.attention().output(), Shape.width, linear()>>>;
  using Mlp = nn::Sequence<nn::Named<"gate_up", nn::Linear<Shape.width, Glu::input, linear()>>, Glu,
                           nn::Named<"down", nn::Linear<Shape.mlp_width(), Shape.width, linear()>>>;
  using Block = nn::Sequence<nn::Residual<nn::Named<"attention_norm", Norm>, nn::Named<"attention", Attention>, Drop>,
                             nn::Residual<nn::Named<"mlp_norm", Norm>, nn::Named<"mlp", Mlp>, Drop>>;
  using Head = std::conditional_t<Shape.tied, nn::Linear<Shape.width, vocabulary(), linear(), "token_embedding.weight">,
                                  nn::Linear<Shape.width, vocabulary(), linear()>>;
  using Model = nn::Sequence<nn::Named<"token_embedding", nn::TokenEmbedding<Shape.vocab, Shape.width, tokens()>>, Drop,
                             nn::Named<"blocks", nn::Repeat<Shape.layers, Block>>, nn::Named<"final_norm", Norm>,
                             nn::Named<"head", Head>>;
};

}  // namespace detail

/// Token ids to logits of [rows, vocab].
template <LlamaShape Shape>
using Llama = typename detail::LlamaParts<Shape>::Model;

}  // namespace dtrain::models
