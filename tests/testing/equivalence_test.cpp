// The comparison of runs finds every kind of difference, and says which.
#include "dtrain/testing/equivalence.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "dtrain/models/mlp.hpp"

namespace dt = dtrain;
using dt::testing::RecordedRun;

namespace {

RecordedRun run() {
  RecordedRun run;
  run.strategy = "Serial";
  run.start = {{"a.weight", {1.0, 2.0}}, {"b.bias", {0.0}}};
  dt::testing::RecordedStep step;
  step.loss = 2.0;
  step.tokens = 5;
  step.gradient_norm = 3.0;
  step.gradients = {{"a.weight", {1.0, -4.0}}, {"b.bias", {0.0}}};
  step.weights = {{"a.weight", {0.9, 2.1}}, {"b.bias", {0.0}}};
  run.steps = {step, step};
  run.evaluation_loss = 1.5;
  return run;
}

// What is said of a run that differs from `run()` in one way.
template <class Change>
std::string complaint(Change change) {
  RecordedRun other = run();
  change(other);
  try {
    dt::testing::compare_runs(run(), other);
  } catch (const dt::Error& error) {
    return error.what();
  }
  return "";
}
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("equal runs differ by nothing") { CHECK(dt::testing::compare_runs(run(), run()) == 0.0); }

TEST_CASE("the measure is the largest difference over the largest element of a tensor") {
  RecordedRun other = run();
  other.steps[1].gradients["a.weight"][0] += 4e-13;
  CHECK(dt::testing::compare_runs(run(), other) == doctest::Approx(1e-13).epsilon(1e-3));
}

TEST_CASE("each kind of difference is told with its place and both values") {
  const std::string gradient = complaint([](RecordedRun& r) { r.steps[1].gradients["a.weight"][1] = -4.5; });
  CAPTURE(gradient);
  CHECK(contains(gradient, "in step 1"));
  CHECK(contains(gradient, "element 1 of the gradient of a.weight"));
  CHECK(contains(gradient, "-4 and -4.5"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].weights["a.weight"][0] = 0.91; }), "weight of a.weight"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].weights["b.bias"][0] = 1e-300; }), "weight of b.bias"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].weights["b.bias"][0] = std::nan(""); }), "b.bias"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].loss = 2.0 + 1e-11; }), "the loss is"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[1].gradient_norm = 6.0; }), "global norm is 3 and 6"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[1].tokens = 4; }), "5 and 4 targets"));
  CHECK(contains(complaint([](RecordedRun& r) { r.start["a.weight"][0] = std::nextafter(1.0, 2.0); }), "start"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].gradients.erase("b.bias"); }), "b.bias"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps[0].gradients["c"] = {1.0}; }), "of c in one only"));
  CHECK(contains(complaint([](RecordedRun& r) { r.steps.pop_back(); }), "2 and 1 steps"));
  CHECK(contains(complaint([](RecordedRun& r) { r.evaluation_loss = 1.6; }), "evaluation loss"));
}

TEST_CASE("copies that differ in one bit are told apart") {
  std::vector<dt::testing::detail::RankRecord> ranks(2);
  for (auto& rank : ranks) {
    rank.held_weights = {{"w", 2, {{0, 0}, {1, 1}}}};
    rank.start = {1.0, 2.0};
  }
  const auto held = [](const dt::testing::detail::RankRecord& r) -> const auto& { return r.held_weights; };
  const auto region = [](const dt::testing::detail::RankRecord& r) -> const auto& { return r.start; };
  CHECK(dt::testing::detail::assemble(ranks, "weight", "S", held, region).at("w") == std::vector<double>{1.0, 2.0});
  ranks[1].start[1] = std::nextafter(2.0, 3.0);
  CHECK_THROWS_WITH_AS(dt::testing::detail::assemble(ranks, "weight", "S", held, region),
                       doctest::Contains("copies of a weight differ: element 1 of w"), dt::Error);
  ranks[1].held_weights[0].elements = {{0, 0}};
  ranks[0].held_weights[0].elements = {{0, 0}};
  CHECK_THROWS_WITH_AS(dt::testing::detail::assemble(ranks, "weight", "S", held, region),
                       doctest::Contains("no rank holds element 1 of w"), dt::Error);
}

TEST_CASE("an MLP over features under two strategies") {
  using Model = dt::models::Mlp<dt::models::MlpShape{.inputs = 5, .hidden = 8, .outputs = 3, .layers = 2}>;
  CHECK(dt::testing::assert_equivalent<Model, dt::Serial, dt::Strategy<dt::DataParallel<2>, dt::TensorParallel<2>>>(
            {.run = {.samples = 12, .context = 1, .steps = 3}, .micro_batches = 3}) < 1e-13);
}
