// The gradients of whole models against finite differences, dropout included.
#include <doctest/doctest.h>

#include "dtrain/models/gpt.hpp"
#include "dtrain/models/llama.hpp"
#include "dtrain/models/mlp.hpp"
#include "dtrain/testing/gradient_check.hpp"

namespace models = dtrain::models;
using dtrain::testing::check_model_gradients;

TEST_CASE("GPT") {
  CHECK_NOTHROW(check_model_gradients<models::Gpt<models::GptShape{
                    .vocab = 7, .context = 4, .width = 8, .heads = 2, .layers = 2, .dropout = 0.2}>>());
}
TEST_CASE("Llama") {
  CHECK_NOTHROW(
      check_model_gradients<models::Llama<models::LlamaShape{
          .vocab = 7, .context = 4, .width = 8, .heads = 2, .layers = 2, .key_value_heads = 1, .dropout = 0.2}>>());
}
TEST_CASE("MLP") {
  CHECK_NOTHROW(
      (check_model_gradients<models::Mlp<models::MlpShape{.inputs = 3, .hidden = 8, .outputs = 5, .layers = 2}>>()));
}
