// Llama with one key/value head for two ranks, and with as many as heads, against PyTorch.
#include "models.hpp"

TEST_CASE("Llama with one key/value head") {
  using Model = dtrain::models::Llama<dtrain::models::LlamaShape{.vocab = 7,
                                                                 .context = 9,
                                                                 .width = 8,
                                                                 .heads = 2,
                                                                 .layers = 3,
                                                                 .key_value_heads = 1,
                                                                 .hidden = 10,
                                                                 .tied = false}>;
  const golden::Case c = golden::load("llama_one_key");
  golden::check_case<Model, dtrain::Strategy<dtrain::PipelineParallel<3>, dtrain::TensorParallel<2>>>(c, 2);
}
TEST_CASE("Llama with as many key/value heads") {
  using Model = dtrain::models::Llama<dtrain::models::LlamaShape{.vocab = 10,
                                                                 .context = 7,
                                                                 .width = 12,
                                                                 .heads = 2,
                                                                 .layers = 1,
                                                                 .key_value_heads = 2,
                                                                 .hidden = 16,
                                                                 .tied = false}>;
  const golden::Case c = golden::load("llama_all_keys");
  golden::check_case<Model,
                     dtrain::Strategy<dtrain::DataParallel<2>, dtrain::TensorParallel<2, dtrain::SequenceParallel>>>(c,
                                                                                                                     1);
}
