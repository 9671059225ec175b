// Two layers written outside the library: one with a parameter that tensor parallelism may cut, one that keeps numbers
// for its backward pass. Both pass the conformance suite, and a model of them trains to the same numbers on one rank
// and on four.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>

#include <dtrain/dtrain.hpp>

namespace dt = dtrain;
namespace nn = dtrain::nn;

namespace {

// [snippet scale]
/// y = w * x, feature by feature: LayerScale (H. Touvron et al., "Going deeper with image transformers", 2021, eq. 4).
template <dt::Index Width>
struct LayerScale {
  static constexpr nn::Features input = nn::features_of(Width);
  static constexpr nn::Features output = nn::features_of(Width);
  static constexpr bool saves_input = true;

  /// Takes what comes: every element is treated by itself. Where the features are cut, so is the parameter.
  static constexpr nn::LayoutRule layouts(nn::Layout incoming, nn::TensorAxis tensor) {
    nn::LayoutRule rule = nn::element_wise(incoming, tensor);
    if (rule.in == nn::Layout::split_features) rule.cut = nn::Cut::rows;
    return rule;
  }
  static constexpr std::array<nn::Parameter, 1> parameters(nn::LayoutRule rule) {
    return {nn::Parameter{.name = "weight", .rows = input, .cut = rule.cut, .initializer = nn::constant(0.1)}};
  }
  static constexpr double flops_per_row(dt::Index) { return double(Width); }
  // [end snippet]

  // [snippet check]
  /// What the degree of tensor parallelism must be like: refused in one sentence, with the numbers, by the compiler.
  template <nn::TensorAxis Tensor, nn::LayoutRule Rule>
  static consteval void check() {
    if constexpr (Rule.cut == nn::Cut::rows)
      static_assert(nn::Divides<Width, Tensor.degree>,
                    "my layers: the features of a LayerScale do not divide over the tensor-parallel ranks");
  }
  // [end snippet]

  // [snippet passes]
  template <class Site, class T>
  static void forward(const Site& site, dt::Matrix<const T> x, dt::Matrix<T> y) {
    const auto w = site.template parameter<0>().flat();
    for (dt::Index r = 0; r < x.rows(); ++r)
      for (dt::Index c = 0; c < x.columns(); ++c) y(r, c) = w[static_cast<std::size_t>(c)] * x(r, c);
  }
  template <class Site, class T>
  static void backward_input(const Site& site, dt::Matrix<const T> dy, dt::Matrix<T> dx) {
    const auto w = site.template parameter<0>().flat();
    for (dt::Index r = 0; r < dy.rows(); ++r)
      for (dt::Index c = 0; c < dy.columns(); ++c) dx(r, c) = w[static_cast<std::size_t>(c)] * dy(r, c);
  }
  /// Adds to the gradient: other micro-batches have added theirs.
  template <class Site, class T>
  static void backward_weight(const Site& site, dt::Matrix<const T> dy) {
    const auto x = site.input();
    const auto dw = site.template gradient<0>().flat();
    for (dt::Index c = 0; c < dy.columns(); ++c) {
      dt::Accumulator<T> sum{};
      for (dt::Index r = 0; r < dy.rows(); ++r) sum += x(r, c) * dy(r, c);
      dw[static_cast<std::size_t>(c)] += sum;
    }
  }
  // [end snippet]
};

// [snippet saved]
/// y = x / |x|, row by row. Keeps 1 / |x| of every row, and its own output, for the backward pass.
template <dt::Index Width>
struct UnitRows {
  static constexpr nn::Features input = nn::features_of(Width);
  static constexpr nn::Features output = nn::features_of(Width);
  static constexpr bool saves_output = true;
  static constexpr dt::Index saved_per_row(nn::TensorAxis) { return 1; }

  /// Needs whole rows: works in the residual stream.
  static constexpr nn::LayoutRule layouts(nn::Layout, nn::TensorAxis tensor) { return nn::row_wise(tensor); }
  static constexpr auto parameters(nn::LayoutRule) { return nn::no_parameters; }
  static constexpr double flops_per_row(dt::Index) { return 3.0 * double(Width); }

  template <class Site, class T>
  static void forward(const Site& site, dt::Matrix<const T> x, dt::Matrix<T> y) {
    using A = dt::Accumulator<T>;
    for (dt::Index r = 0; r < x.rows(); ++r) {
      A squares{};
      for (dt::Index c = 0; c < Width; ++c) squares += A(x(r, c)) * A(x(r, c));
      const A scale = A(1) / std::sqrt(squares + A(1e-12));
      site.saved()[r] = scale;
      for (dt::Index c = 0; c < Width; ++c) y(r, c) = T(scale * A(x(r, c)));
    }
  }
  /// dx = (dy - y (y . dy)) / |x|
  template <class Site, class T>
  static void backward_input(const Site& site, dt::Matrix<const T> dy, dt::Matrix<T> dx) {
    using A = dt::Accumulator<T>;
    const auto y = site.output();
    for (dt::Index r = 0; r < dy.rows(); ++r) {
      A along{};
      for (dt::Index c = 0; c < Width; ++c) along += A(y(r, c)) * A(dy(r, c));
      for (dt::Index c = 0; c < Width; ++c) dx(r, c) = T((A(dy(r, c)) - A(y(r, c)) * along) * site.saved()[r]);
    }
  }
};
// [end snippet]

// [snippet model]
constexpr dt::Index width = 32;
constexpr nn::AttentionOptions heads{.heads = 4, .key_value_heads = 4, .head_size = 8};

using Attention = nn::Sequence<nn::Named<"qkv", nn::Linear<width, heads.input()>>, nn::CausalSelfAttention<heads>,
                               nn::Named<"gain", LayerScale<heads.output().whole()>>,
                               nn::Named<"output", nn::Linear<heads.output(), width>>>;
using Block = nn::Sequence<
    nn::Residual<UnitRows<width>, nn::Named<"attention", Attention>, nn::Named<"attention_scale", LayerScale<width>>>>;
using Model =
    nn::Sequence<nn::Named<"embedding", nn::TokenEmbedding<256, width, nn::EmbeddingOptions{nn::normal(1.0)}>>,
                 nn::Named<"blocks", nn::Repeat<2, Block>>,
                 nn::Named<"head", nn::Linear<width, nn::vocabulary_of(256)>>>;
// [end snippet]

using Strategy = dt::Strategy<dt::PipelineParallel<2>, dt::TensorParallel<2, dt::SequenceParallel>>;

}  // namespace

int main(int argc, char** argv) {
  try {
    // [snippet conformance]
    dt::testing::check_layer<LayerScale<8>>();
    dt::testing::check_layer<UnitRows<8>>();
    // [end snippet]

    // [snippet equivalence]
    const double difference =
        dt::testing::assert_equivalent<Model, dt::Serial, Strategy>({.run = {.samples = 8, .context = 16, .steps = 2}});
    std::printf("serial and %s differ by %.1e\n", Strategy::describe().c_str(), difference);
    // [end snippet]
  } catch (const dt::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }

  return dt::launch<Strategy>(argc, argv, [](auto& rank) {
    const dt::data::ByteText text(__FILE__, {.context = 16});
    dt::Trainer<Model, Strategy, dt::AdamW> trainer(rank, {.learning_rate = dt::Constant{1e-2}});
    const double before = trainer.fit(text, {.steps = 1, .batch = 8}).loss;
    const double after = trainer.fit(text, {.steps = 80, .batch = 8}).loss;
    if (rank.is_first()) std::printf("loss %.3f, and %.3f after 80 steps\n", before, after);
    if (!(after < before - 1.0)) throw dt::Error("a model of the layers has not learned");
  });
}
