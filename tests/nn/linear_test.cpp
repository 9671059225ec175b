// Linear layers keep the contract of layers, whole and cut.
#include <doctest/doctest.h>

#include "dtrain/nn/linear.hpp"
#include "dtrain/testing/layer_conformance.hpp"

namespace nn = dtrain::nn;
using dtrain::testing::check_layer;

TEST_CASE("a linear layer") { CHECK_NOTHROW(check_layer<nn::Linear<6, 4>>()); }
TEST_CASE("a linear layer without bias") {
  CHECK_NOTHROW((check_layer<nn::Linear<6, 4, nn::LinearOptions{.bias = false}>, 1>()));
}
TEST_CASE("a linear layer that is not divided") {
  CHECK_NOTHROW(check_layer<nn::Linear<6, 3, nn::LinearOptions{.divide = false}>>());
}
