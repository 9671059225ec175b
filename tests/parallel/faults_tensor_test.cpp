// Faults of tensor and sequence parallelism, of vocabulary padding and of the loss head, with the table's numbers.
#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "dtrain/nn/norm.hpp"
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
doctest::Approx close(double value, double tolerance = 1e-14) { return doctest::Approx(value).epsilon(tolerance); }
}  // namespace

// fault C1
TEST_CASE("the bias of a layer cut by input features is added once") {
  using Model = nn::Sequence<nn::Named<"first", nn::Linear<2, 2, LinearOptions{.bias = false}>>,
                             nn::Named<"second", nn::Linear<2, 3>>>;
  const auto check = [](auto& program, auto&) {
    set(program, "first.weight", {1, 0, 0, 1});
    set(program, "second.weight", {1, 1, 3, 2, 5, 3});
    set(program, "second.bias", {100, 200, 300});
    std::array<double, 3> logits{};
    program.logits(
        1, 0,
        [](auto inputs) {
          inputs[0] = 10;
          inputs[1] = 20;
        },
        std::span<double>(logits));
    CHECK(logits == std::array<double, 3>{130, 270, 410});
  };
  with_programs<Model, Strategy<TensorParallel<2>>>(check);
  with_programs<Model, SequenceTwo>(check);
}

// fault C3, fault C4
TEST_CASE("gradients of a norm are summed over the ranks that share its rows") {
  using Model = nn::Sequence<nn::Named<"norm", nn::LayerNorm<2>>,
                             nn::Named<"head", nn::Linear<2, 3, LinearOptions{.bias = false, .divide = false}>>>;
  // The norm gives 0, so each class has 1/3; the row with target 0 then adds [1, 2] and that with target 1 adds [3, 4].
  Batch batch;
  batch.add({1.0, -1.0}, 0);
  batch.add({2.0, 5.0}, 1);
  with_programs<Model, SequenceTwo>([&](auto& program, auto&) {
    set(program, "norm.weight", {0, 0});
    set(program, "head.weight", {-10, -16, -14, -20, 0, 0});
    run_batch(program, batch);
    const auto both = gradient(program, "norm.bias");
    CHECK(both[0] == close(4.0));
    CHECK(both[1] == close(6.0));
  });
}

// fault C13
TEST_CASE("a vocabulary is padded once, to what the tensor degree needs") {
  const nn::FeaturePart vocabulary = nn::vocabulary_of(50257, 128).parts[0];
  CHECK(vocabulary.padded_units(1) == 50304);
  CHECK(vocabulary.padded_units(2) == 50432);
  CHECK(vocabulary.padded_units(4) == 50688);
  CHECK(vocabulary.padded_units(8) == 51200);
  // Whatever the degree, the ranks' blocks together are the rows that are real.
  const nn::Parameter weight{
      .rows = nn::vocabulary_of(50257, 128), .columns = nn::features_of(2), .cut = nn::Cut::rows};
  for (const int degree : {1, 2, 4, 8}) {
    Index next = 0;
    for (int rank = 0; rank < degree; ++rank)
      for (const auto& segment : dt::parallel::locate_parameter(weight, "w", 0, 0, degree, rank).segments) {
        CHECK(segment.whole_row == next);
        CHECK(segment.rows.begin == 0);
        next += segment.rows.size();
      }
    CHECK(next == 50257);
  }
}

// fault C13
TEST_CASE("a padded vocabulary starts with the same rows under every degree, and its padding stays 0") {
  using Model = nn::Sequence<nn::Named<"head", nn::Linear<4, nn::vocabulary_of(17, 3), LinearOptions{.bias = false}>>>;
  std::vector<double> one(17 * 4);
  const auto read = [](auto& program) {
    std::vector<double> whole(17 * 4, std::numeric_limits<double>::quiet_NaN());
    const auto& parameter = program.stage().map().at(0);
    dt::parallel::for_each_element(parameter, [&](Index local, Index element) {
      whole[static_cast<std::size_t>(element)] = program.stage().parameters()[static_cast<std::size_t>(local)];
    });
    return whole;
  };
  with_programs<Model, Serial>([&](auto& program, auto&) { one = read(program); });
  with_programs<Model, Strategy<TensorParallel<4>>>([&](auto& program, auto&) {
    const auto held = read(program);
    Index real = 0;
    for (std::size_t i = 0; i < held.size(); ++i)
      if (!std::isnan(held[i])) {
        CHECK(held[i] == one[i]);
        ++real;
      }
    Index nonzero = 0;
    for (const double value : program.stage().parameters()) nonzero += value != 0.0 ? 1 : 0;
    CHECK(nonzero == real);
  });
}

// fault C12, fault C15
TEST_CASE("a vocabulary of 5 on two ranks: targets on the other rank, beside the padding, and ignored ones") {
  using Model = nn::Sequence<nn::Named<"head", nn::Linear<5, nn::vocabulary_of(5), LinearOptions{.bias = false}>>>;
  std::vector<double> identity(25, 0.0);
  for (std::size_t i = 0; i < 5; ++i) identity[i * 6] = 1.0;
  Batch batch;
  batch.add({1, 2, 3, 4, 5}, 4);
  batch.add({5, 4, 3, 2, 1}, 0);
  batch.add({-700, -700, -700, -700, -700}, 3);
  batch.add({1, 1, 1, 1, 1}, ignored_target);
  double serial = 0.0;
  std::vector<double> expected;
  with_programs<Model, Serial>([&](auto& program, auto&) {
    set(program, "head.weight", identity);
    serial = run_batch(program, batch).loss();
    expected = gradient(program, "head.weight");
  });
  const double row = std::log(1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0) + std::exp(-4.0));
  CHECK(serial == close((row + row + std::log(5.0)) / 3));
  const auto check = [&](auto& program, auto&) {
    set(program, "head.weight", identity);
    CHECK(run_batch(program, batch).loss() == close(serial));
    const auto held = gradient(program, "head.weight");
    for (std::size_t i = 0; i < held.size(); ++i)
      if (!std::isnan(held[i])) CHECK(held[i] == close(expected[i], 1e-13));
    // Columns 0 to 2 are on rank 0, 3, 4 and one of padding on rank 1: its gradient is 0.
    Index held_elements = 0;
    for (const double value : held) held_elements += std::isnan(value) ? 0 : 1;
    Index counted = 0;
    for (const double value : program.stage().gradients()) counted += value != 0.0 ? 1 : 0;
    CHECK(counted <= held_elements);
  };
  with_programs<Model, Strategy<TensorParallel<2>>>(check);
  with_programs<Model, SequenceTwo>(check);
}

// fault C17
TEST_CASE("the gradient of the cross entropy") {
  using Model = nn::Sequence<nn::Named<"head", nn::Linear<4, nn::vocabulary_of(4)>>>;
  std::vector<double> identity(16, 0.0);
  for (std::size_t i = 0; i < 4; ++i) identity[i * 5] = 1.0;
  Batch batch;
  batch.add({1, 2, 3, 4}, 2);
  const auto check = [&](auto& program, auto&) {
    set(program, "head.weight", identity);
    CHECK(run_batch(program, batch).loss() == close(1.4401897, 1e-7));
    const std::array<double, 4> expected{.0320586, .0871443, -.7631172, .6439143};
    const auto held = gradient(program, "head.bias");
    for (std::size_t i = 0; i < 4; ++i)
      if (!std::isnan(held[i])) CHECK(held[i] == close(expected[i], 1e-6));
  };
  with_programs<Model, Serial>(check);
  with_programs<Model, Strategy<TensorParallel<2>>>(check);
}
