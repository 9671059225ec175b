// Activations and dropout keep the contract of layers.
#include <doctest/doctest.h>

#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/dropout.hpp"
#include "dtrain/testing/layer_conformance.hpp"

namespace nn = dtrain::nn;
using dtrain::testing::check_layer;

TEST_CASE("GELU") {
  CHECK_NOTHROW(check_layer<nn::Gelu<6>>());
  CHECK_NOTHROW((check_layer<nn::Gelu<6, nn::GeluKind::erf>, 1>()));
}
TEST_CASE("SwiGLU") { CHECK_NOTHROW(check_layer<nn::SwiGlu<4>>()); }
TEST_CASE("dropout") { CHECK_NOTHROW((check_layer<nn::Dropout<8, nn::Probability{0.5}>, 1>())); }
