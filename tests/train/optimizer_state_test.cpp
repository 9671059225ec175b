// Master weights: where they start, what they keep that 16 bits lose, and that decay goes by a parameter's description.
#include "dtrain/train/optimizer_state.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/sgd.hpp"

namespace {

using namespace dtrain;

constexpr std::uint64_t seed = 11;

// Matrix, norm weight and bias, one behind the other in one region.
std::vector<parallel::LocalParameter> three_parameters() {
  std::vector<parallel::LocalParameter> map;
  Index offset = 0;
  const auto add = [&](std::string name, bool matrix, nn::Initializer initializer) {
    const nn::Parameter described{.name = "weight",
                                  .rows = nn::features_of(8),
                                  .columns = matrix ? nn::features_of(4) : nn::Features(nn::features_of(1)),
                                  .initializer = initializer,
                                  .decay = matrix};
    map.push_back(parallel::locate_parameter(described, std::move(name), 0, offset, 1, 0));
    offset += round_up(map.back().size(), 16);
  };
  add("norm.bias_correction", true, nn::uniform(0.3));  // the name says nothing of decay
  add("matrix.weight", false, nn::constant(1.0));
  add("bias", false, nn::constant(1.0));
  return map;
}
Index region_size(const std::vector<parallel::LocalParameter>& map) { return round_up(map.back().range().end, 16); }

template <class T>
std::vector<T> started(const std::vector<parallel::LocalParameter>& map) {
  std::vector<T> parameters(static_cast<std::size_t>(region_size(map)));
  for (const parallel::LocalParameter& parameter : map) parallel::initialize(parameter, seed, std::span(parameters));
  return parameters;
}

}  // namespace

TEST_CASE_TEMPLATE("master weights start from the numbers that parameters are rounded from", T, dtrain::bfloat16,
                   float16) {
  Host device;
  const auto map = three_parameters();
  train::OptimizerState<AdamW, T, Host> state(device, region_size(map), map, seed);
  CHECK(state.bytes() == 3 * region_size(map) * Index{4});
  const std::vector<float> exact = started<float>(map);
  const std::vector<T> rounded = started<T>(map);
  int inexact = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(state.masters()[i] == exact[i]);
    CHECK(rounded[i].bits() == T(exact[i]).bits());
    inexact += static_cast<float>(rounded[i]) != exact[i] ? 1 : 0;
  }
  CHECK(inexact > 20);
}

// fault D10
TEST_CASE_TEMPLATE("updates too small for 16 bits add up in the master weights", T, dtrain::bfloat16, float16) {
  Host device;
  const auto map = three_parameters();
  const auto size = static_cast<std::size_t>(region_size(map));
  train::OptimizerState<Sgd, T, Host> state(device, region_size(map), map, seed);
  std::vector<T> parameters = started<T>(map);
  std::vector<float> wide = started<float>(map);
  const std::vector<float> gradients(size, 1.0f);
  // Around 1 the spacing of float16 is 2^-11 below and 2^-10 above: each step alone rounds away.
  const double rate = 0x1p-14;
  CHECK(static_cast<float>(T(1.0f - 0x1p-14f)) == 1.0f);
  const auto at = static_cast<std::size_t>(map[2].offset);
  for (Index step = 1; step <= 256; ++step) {
    state.update(Sgd{}, parameters, gradients, rate, 1.0, step);
    for (float& weight : wide) weight -= static_cast<float>(rate);
  }
  CHECK(static_cast<float>(parameters[at]) == 1.0f - 256 * 0x1p-14f);
  for (const parallel::LocalParameter& parameter : map)
    for (Index i = parameter.offset; i < parameter.range().end; ++i) {
      const auto element = static_cast<std::size_t>(i);
      CHECK(state.masters()[element] == wide[element]);
      CHECK(parameters[element].bits() == T(wide[element]).bits());
    }
}

TEST_CASE("float and double are updated in place, without master weights") {
  Host device;
  const auto map = three_parameters();
  train::OptimizerState<AdamW, float, Host> narrow(device, region_size(map), map, seed);
  train::OptimizerState<AdamW, double, Host> wide(device, region_size(map), map, seed);
  CHECK(narrow.bytes() == 2 * region_size(map) * Index{4});
  CHECK(wide.bytes() == 2 * region_size(map) * Index{8});
  CHECK_FALSE(train::OptimizerState<AdamW, float, Host>::has_master);
}

// fault D11
TEST_CASE_TEMPLATE("decay follows the description, not the name, over one flat region", Format, float, double,
                   dtrain::bfloat16, float16, Precision<dtrain::bfloat16, dtrain::bfloat16>) {
  using T = typename PrecisionOf<Format>::Parameter;
  Host device;
  const auto map = three_parameters();
  train::OptimizerState<AdamW, Format, Host> state(device, region_size(map), map, seed);
  std::vector<T> parameters(static_cast<std::size_t>(region_size(map)), T(1.0f));
  if constexpr (PrecisionOf<Format>::has_master)
    for (auto& master : state.masters()) master = 1.0f;
  const std::vector<typename PrecisionOf<Format>::Gradient> gradients(parameters.size());
  state.update(AdamW{.weight_decay = 0.1}, parameters, gradients, 0.1, 1.0, 1);
  const auto value = [&](std::size_t index) {
    return static_cast<double>(parameters[static_cast<std::size_t>(map[index].offset)]);
  };
  CHECK(value(0) == doctest::Approx(0.99).epsilon(sizeof(T) == 2 ? 0x1p-8 : 1e-7));
  CHECK(value(1) == 1.0);
  CHECK(value(2) == 1.0);
  if constexpr (PrecisionOf<Format>::has_master)
    CHECK(static_cast<double>(state.masters()[0]) == doctest::Approx(0.99).epsilon(1e-7));
}
