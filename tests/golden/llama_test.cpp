// Llama against PyTorch: loss, gradients, and weights after ten steps, on one rank and on many.
#include "models.hpp"

TEST_CASE("Llama with grouped heads") {
  using Model = dtrain::models::Llama<dtrain::models::LlamaShape{.vocab = 19,
                                                                 .context = 6,
                                                                 .width = 16,
                                                                 .heads = 4,
                                                                 .layers = 2,
                                                                 .key_value_heads = 2,
                                                                 .hidden = 24,
                                                                 .tied = false}>;
  const golden::Case c = golden::load("llama");
  golden::check_case<Model, dtrain::Serial>(c, 1);
  golden::check_case<Model, dtrain::Strategy<dtrain::DataParallel<3>, dtrain::PipelineParallel<2>>>(c, 1);
  golden::check_case<
      Model, dtrain::Strategy<dtrain::PipelineParallel<2>, dtrain::TensorParallel<4, dtrain::SequenceParallel>>>(c, 3);
}
