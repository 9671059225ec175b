// Faults of randomness: starts and masks are functions of (seed, name, global index, step), never of the layout.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/embedding.hpp"
#include "dtrain/testing/unit_run.hpp"
#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
namespace nn = dtrain::nn;
using dt::Index;
using dt::Serial;
using dt::Strategy;
using dt::TensorParallel;

namespace {

using SequenceTwo = Strategy<TensorParallel<2, dt::SequenceParallel>>;

// The gradient of row p of the positions is the mask of row p, times what the head sends back.
constexpr Index width = 32;
constexpr Index context = 6;
using Masked =
    nn::Sequence<nn::Named<"first", nn::Linear<2, 4, LinearOptions{.bias = false}>>,
                 nn::Named<"second", nn::Linear<4, width, LinearOptions{.bias = false}>>,
                 nn::Named<"positions", nn::PositionEmbedding<context, width>>,
                 nn::Dropout<width, nn::Probability{0.5}>, nn::Named<"head", nn::Linear<width, nn::vocabulary_of(5)>>>;

// Which elements of the positions' gradient are kept, in the gradient of one sequence.
template <class S>
std::vector<bool> mask(std::uint64_t step, int steps_before = 0, bool draws_elsewhere = false) {
  std::vector<bool> kept;
  std::mutex mutex;
  with_programs<Masked, S>([&](auto& program, auto& rank) {
    std::mt19937 other(1);
    const auto feed = [&](dt::Range, auto inputs, auto targets) {
      // A generator that only the first rank uses does not move anything.
      if (draws_elsewhere && rank.index() == 0) (void)other();
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<double>(i % 5) - 2.0;
      for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i % 5);
    };
    const dt::parallel::BatchShape shape{.samples = 1, .context = context};
    for (int before = 0; before < steps_before; ++before)
      program.gradients(shape, static_cast<std::uint64_t>(before), feed);
    program.gradients(shape, step, feed);
    const std::vector<double> dw = gradient(program, "positions.weight");
    const std::lock_guard lock(mutex);
    std::vector<bool> own;
    for (const double element : dw) own.push_back(element != 0.0);
    if (kept.empty()) kept = own;
    CHECK(kept == own);
  });
  return kept;
}

}  // namespace

// fault C5
TEST_CASE("masks are of the global row: equal on ranks that hold the same rows, different where rows differ") {
  const std::vector<bool> serial = mask<Serial>(3);
  CHECK(mask<Strategy<TensorParallel<2>>>(3) == serial);
  CHECK(mask<SequenceTwo>(3) == serial);
  // Under sequence parallelism rank 0 holds rows 0 to 2 and rank 1 rows 3 to 5.
  const auto half = static_cast<std::ptrdiff_t>(serial.size() / 2);
  CHECK(!std::equal(serial.begin(), serial.begin() + half, serial.begin() + half));
  const auto kept = std::count(serial.begin(), serial.end(), true);
  CHECK(kept > width * context / 4);
  CHECK(kept < width * context * 3 / 4);
}

// fault C7
TEST_CASE("after ten batches the masks are where they would be anyhow, whatever one rank's loader draws") {
  const std::vector<bool> expected = mask<Serial>(10);
  CHECK(mask<Serial>(10, 10) == expected);
  CHECK(mask<Strategy<TensorParallel<2>>>(10, 10, true) == expected);
  CHECK(mask<SequenceTwo>(10, 10, true) == expected);
  CHECK(mask<Serial>(11) != expected);
}

// fault C8
TEST_CASE("a parameter starts as the same whole under every tensor degree") {
  using Model =
      nn::Sequence<nn::Named<"tokens", nn::TokenEmbedding<7, 8>>, nn::Named<"up", nn::Linear<8, 12>>,
                   nn::Named<"down", nn::Linear<12, 8>>, nn::Named<"head", nn::Linear<8, nn::vocabulary_of(7)>>>;
  std::map<std::string, std::vector<double>> serial;
  with_programs<Model, Serial>([&](auto& program, auto&) {
    for (const auto& parameter : program.stage().map()) {
      auto& whole = serial[parameter.name];
      whole.resize(static_cast<std::size_t>(parameter.whole_rows * parameter.whole_columns));
      dt::parallel::for_each_element(parameter, [&](Index local, Index element) {
        whole[static_cast<std::size_t>(element)] = program.stage().parameters()[static_cast<std::size_t>(local)];
      });
    }
  });
  REQUIRE(serial.size() == 7);
  // Neighbouring ranks' shards are not copies of each other.
  const auto& up = serial.at("up.weight");
  CHECK(!std::equal(up.begin(), up.begin() + 48, up.begin() + 48));
  std::mutex mutex;
  const auto check = [&](auto& program, auto&) {
    const std::lock_guard lock(mutex);
    for (const auto& parameter : program.stage().map())
      dt::parallel::for_each_element(parameter, [&](Index local, Index element) {
        CHECK(program.stage().parameters()[static_cast<std::size_t>(local)] ==
              serial.at(parameter.name)[static_cast<std::size_t>(element)]);
      });
  };
  with_programs<Model, Strategy<TensorParallel<2>>>(check);
  with_programs<Model, Strategy<TensorParallel<4, dt::SequenceParallel>>>(check);
  with_programs<Model, Strategy<dt::DataParallel<2>, dt::PipelineParallel<2>>>(check);
}

// fault E9
TEST_CASE("a forward pass that is run again draws the same mask, and the backward pass too") {
  using Drop = nn::Named<"drop", nn::Dropout<16, nn::Probability{0.5}>>;
  const dt::testing::UnitShape shape{.samples = 3, .context = 4};
  dt::Host device;
  dt::testing::UnitRun<Drop> once(device, shape);
  const std::vector<double> ones(static_cast<std::size_t>(once.outputs()), 1.0);
  const auto y = once.forward();
  const auto dx = once.backward(ones);
  dt::testing::UnitRun<Drop> again(device, shape);
  again.forward();
  CHECK(again.forward() == y);
  CHECK(again.backward(ones) == dx);
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(dx[i] == (y[i] == 0.0 ? 0.0 : 2.0));
  CHECK(std::count(y.begin(), y.end(), 0.0) > 0);
}
