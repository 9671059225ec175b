// Norms keep the contract of layers.
#include <doctest/doctest.h>

#include "dtrain/nn/norm.hpp"
#include "dtrain/testing/layer_conformance.hpp"

namespace nn = dtrain::nn;
using dtrain::testing::check_layer;

TEST_CASE("LayerNorm") { CHECK_NOTHROW(check_layer<nn::LayerNorm<6>>()); }
TEST_CASE("RMSNorm") { CHECK_NOTHROW(check_layer<nn::RmsNorm<6>>()); }
