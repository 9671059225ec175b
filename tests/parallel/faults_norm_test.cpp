// Faults of the global norm: every element of every whole parameter is counted once.
#include <doctest/doctest.h>

#include "dtrain/models/gpt.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/clip.hpp"
#include "dtrain/train/trainer.hpp"
#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
namespace nn = dtrain::nn;
using dt::Index;
using dt::PipelineParallel;
using dt::Strategy;
using dt::TensorParallel;

namespace {

// Cut by rows, then by columns with a bias that every tensor rank holds.
using Two = nn::Sequence<nn::Named<"first", nn::Linear<4, 4>>, nn::Named<"second", nn::Linear<4, 4>>>;

// Sets one element of this rank's shard of a gradient.
template <class Program>
void put(Program& program, std::string_view name, double value, Index count = 1) {
  for (const auto& parameter : program.stage().map())
    if (parameter.name == name)
      for (Index i = 0; i < count; ++i)
        program.stage().gradients()[static_cast<std::size_t>(parameter.offset + i)] = value;
}

}  // namespace

// fault B1
TEST_CASE("what tensor ranks hold alike is counted once") {
  with_programs<Two, Strategy<TensorParallel<2>>>([](auto& program, auto& rank) {
    put(program, "second.bias", 3.0);
    put(program, "first.weight", rank.index() == 0 ? 4.0 : 12.0);
    CHECK(program.gradient_norm() == 13.0);
    CHECK(dt::optim::clip_coefficient(program.gradient_norm(), 1.0).coefficient ==
          doctest::Approx(0.0769231).epsilon(1e-6));
  });
}

// fault B5
TEST_CASE("four shards and one parameter that all hold") {
  with_programs<Two, Strategy<TensorParallel<4>>>([](auto& program, auto&) {
    put(program, "second.bias", 3.0);
    put(program, "second.weight", 2.0);
    CHECK(program.gradient_norm() == 5.0);
  });
}

// fault B3
TEST_CASE("the norm is of all stages, on each") {
  with_programs<Two, Strategy<PipelineParallel<2>>>([](auto& program, auto& rank) {
    put(program, rank.index() == 0 ? "first.weight" : "second.weight", rank.index() == 0 ? 3.0 : 4.0);
    CHECK(program.gradient_norm() == 5.0);
  });
}

// fault B4
TEST_CASE("a tied parameter is counted on one of its stages") {
  using Tied = dt::models::Gpt<dt::models::GptShape{.vocab = 6, .context = 2, .width = 4, .heads = 1, .layers = 1}>;
  with_programs<Tied, Strategy<PipelineParallel<2>>>([](auto& program, auto&) {
    REQUIRE(!gradient(program, "token_embedding.weight").empty());
    put(program, "token_embedding.weight", 10.0, 8);
    CHECK(program.gradient_norm() == std::sqrt(800.0));
  });
}

// fault B8
TEST_CASE("gradients that overflow on one rank skip the step on all") {
  using S = Strategy<dt::DataParallel<2>>;
  using Model = nn::Sequence<nn::Named<"first", nn::Linear<2, 2, LinearOptions{.bias = false}>>,
                             nn::Named<"second", nn::Linear<2, 2, LinearOptions{.bias = false}>>>;
  // The logits are 0; the first layer's gradient is 1e10 x / 2, beyond a float for the samples of rank 0 alone.
  Batch batch;
  batch.add({1e30, 0.0}, 0);
  batch.add({1e-3, 0.0}, 1);
  Batch tame = batch;
  tame.features[0][0] = 1.0;
  dt::run_ranks<S>([&](dt::Rank<S, dt::Host>& rank) {
    dt::Trainer<Model, S> trainer(rank, {.clip = 1.0});
    auto& stage = trainer.program().stage();
    set(trainer.program(), "first.weight", {0, 0, 0, 0});
    set(trainer.program(), "second.weight", {1e10, 0, 0, 1e10});
    const std::vector<float> before(stage.parameters().begin(), stage.parameters().end());
    const auto step = [&](const Batch& given) {
      return trainer.step(given.shape(1),
                          [&](dt::Range samples, auto inputs, auto targets) { given.fill(samples, inputs, targets); });
    };
    const auto report = step(batch);
    CHECK(report.skipped);
    CHECK(report.skipped_so_far == 1);
    CHECK(std::isfinite(report.loss));
    CHECK(!std::isfinite(report.gradient_norm));
    CHECK(std::equal(before.begin(), before.end(), stage.parameters().begin()));
    const auto next = step(tame);
    CHECK(!next.skipped);
    CHECK(next.skipped_so_far == 1);
    CHECK(!std::equal(before.begin(), before.end(), stage.parameters().begin()));
    for (const float weight : stage.parameters()) CHECK(std::isfinite(weight));
  });
}
