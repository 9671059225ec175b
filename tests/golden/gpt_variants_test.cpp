// GPT with an exact GELU and an own head, and with grouped heads and without bias, against PyTorch.
#include "models.hpp"

TEST_CASE("GPT with an exact GELU and its own head") {
  using Model = dtrain::models::Gpt<dtrain::models::GptShape{.vocab = 13,
                                                             .context = 5,
                                                             .width = 8,
                                                             .heads = 4,
                                                             .layers = 2,
                                                             .key_value_heads = 4,
                                                             .hidden = 32,
                                                             .bias = true,
                                                             .tied = false,
                                                             .gelu = dtrain::nn::GeluKind::erf}>;
  const golden::Case c = golden::load("gpt_untied_erf");
  golden::check_case<Model, dtrain::Strategy<dtrain::PipelineParallel<2>, dtrain::TensorParallel<2>>>(c, 2);
}
TEST_CASE("GPT with grouped heads, without bias") {
  using Model = dtrain::models::Gpt<dtrain::models::GptShape{.vocab = 11,
                                                             .context = 6,
                                                             .width = 8,
                                                             .heads = 4,
                                                             .layers = 2,
                                                             .key_value_heads = 2,
                                                             .hidden = 20,
                                                             .bias = false,
                                                             .tied = true,
                                                             .gelu = dtrain::nn::GeluKind::tanh_approximation}>;
  const golden::Case c = golden::load("gpt_grouped_no_bias");
  golden::check_case<Model,
                     dtrain::Strategy<dtrain::DataParallel<2>, dtrain::TensorParallel<4, dtrain::SequenceParallel>>>(c,
                                                                                                                     1);
}
