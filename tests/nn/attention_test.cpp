// Attention and rotary positions keep the contract of layers, with dropout, shared and single key/value heads.
#include <doctest/doctest.h>

#include "dtrain/nn/attention.hpp"
#include "dtrain/testing/layer_conformance.hpp"

namespace nn = dtrain::nn;
using dtrain::testing::check_layer;

namespace {
constexpr nn::AttentionOptions grouped{.heads = 4, .key_value_heads = 2, .head_size = 4, .dropout = 0.3};
constexpr nn::AttentionOptions one_key{.heads = 4, .key_value_heads = 1, .head_size = 2, .dropout = 0.3};
}  // namespace

TEST_CASE("attention with grouped heads") { CHECK_NOTHROW(check_layer<nn::CausalSelfAttention<grouped>>()); }
// fault C10
TEST_CASE("attention with one key/value head for two ranks") {
  CHECK_NOTHROW(check_layer<nn::CausalSelfAttention<one_key>>());
}
TEST_CASE("rotary positions") { CHECK_NOTHROW((check_layer<nn::RotaryPositions<grouped>, 1>())); }
