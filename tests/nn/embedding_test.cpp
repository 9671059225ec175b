// Embeddings keep the contract of layers.
#include <doctest/doctest.h>

#include "dtrain/nn/embedding.hpp"
#include "dtrain/testing/layer_conformance.hpp"

namespace nn = dtrain::nn;
using dtrain::testing::check_layer;

TEST_CASE("token embedding of an odd vocabulary") { CHECK_NOTHROW(check_layer<nn::TokenEmbedding<7, 6>>()); }
TEST_CASE("position embedding") { CHECK_NOTHROW(check_layer<nn::PositionEmbedding<4, 6>>()); }
