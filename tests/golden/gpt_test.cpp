// GPT against PyTorch: loss, gradients, and weights after ten steps, on one rank and on many.
#include "models.hpp"

TEST_CASE("GPT with a tied head") {
  using Model = dtrain::models::Gpt<dtrain::models::GptShape{.vocab = 17,
                                                             .context = 8,
                                                             .width = 12,
                                                             .heads = 3,
                                                             .layers = 2,
                                                             .key_value_heads = 3,
                                                             .hidden = 48,
                                                             .bias = true,
                                                             .tied = true,
                                                             .gelu = dtrain::nn::GeluKind::tanh_approximation}>;
  const golden::Case c = golden::load("gpt");
  golden::check_case<Model, dtrain::Serial>(c, 3);
  golden::check_case<Model, dtrain::Strategy<dtrain::DataParallel<3>, dtrain::PipelineParallel<2>>>(c, 1);
  golden::check_case<
      Model, dtrain::Strategy<dtrain::PipelineParallel<3>, dtrain::TensorParallel<3, dtrain::SequenceParallel>>>(c, 3);
}
