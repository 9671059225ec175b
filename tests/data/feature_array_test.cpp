#include "dtrain/data/feature_array.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using dtrain::float16;
using dtrain::Index;
using dtrain::Range;
using dtrain::data::FeatureArray;
using dtrain::data::FeatureArrayOptions;
using dtrain::data::FeatureBatch;
using dtrain::data::FeatureSamples;

namespace {

std::string refusal(FeatureArrayOptions options, const FeatureSamples& samples) {
  try {
    FeatureArray(options, samples);
  } catch (const dtrain::Error& error) {
    return error.what();
  }
  return "";
}

const FeatureSamples three{{0.5, 1.5, 2.5, 3.5, 4.5, 5.5}, {0, 1, -100}};

}  // namespace

TEST_CASE_TEMPLATE("rows are copied in the type of the batch, over the end of an epoch", T, float, double,
                   dtrain::bfloat16, float16) {
  const FeatureArray source({.features = 2, .classes = 2, .shuffle = false}, three);
  std::vector<T> inputs(6);
  std::vector<std::int32_t> targets(3);
  source.fill_training(0, {0, 1}, {0, 3}, FeatureBatch<T>{inputs, targets, 3, 2});
  CHECK(static_cast<double>(inputs[0]) == 2.5);
  CHECK(static_cast<double>(inputs[3]) == 5.5);
  CHECK(static_cast<double>(inputs[4]) == 0.5);
  CHECK(targets == std::vector<std::int32_t>{1, -100, 0});
}

TEST_CASE("inputs and targets stay together when shuffled") {
  FeatureSamples samples;
  for (int i = 0; i < 50; ++i) samples.inputs.push_back(i), samples.targets.push_back(i);
  const FeatureArray source({.features = 1, .classes = 50}, samples);
  std::vector<double> inputs(50);
  std::vector<std::int32_t> targets(50);
  source.fill_training(3, {2, 0}, {0, 50}, FeatureBatch<double>{inputs, targets, 50, 1});
  CHECK(targets != samples.targets);
  for (std::size_t i = 0; i < 50; ++i) CHECK(inputs[i] == targets[i]);
}

TEST_CASE("validation rows past the end are ignored") {
  const FeatureArray source({.features = 2, .classes = 2}, three, {{8, 9}, {1}});
  CHECK(source.validation_samples() == 1);
  std::vector<float> inputs(4, -1.0f);
  std::vector<std::int32_t> targets(2, -1);
  source.fill_validation({0, 2}, FeatureBatch<float>{inputs, targets, 2, 2});
  CHECK(inputs == std::vector<float>{8, 9, 0, 0});
  CHECK(targets == std::vector<std::int32_t>{1, -100});
}

TEST_CASE("malformed samples and batches are refused with the numbers") {
  CHECK(refusal({.features = 0, .classes = 2}, {}) ==
        "FeatureArray: features is 0 and classes 2, but both must be positive");
  CHECK(refusal({.features = 2, .classes = 2}, {}) == "FeatureArray: there is no training sample");
  CHECK(refusal({.features = 2, .classes = 2}, {{1, 2, 3}, {0, 1}}) ==
        "FeatureArray: training has 3 numbers, but 2 targets of 2 features need 4");
  CHECK(refusal({.features = 1, .classes = 2}, {{1}, {2}}) ==
        "FeatureArray: training holds the target 2, outside the 2 classes and not the ignored -100");
  const FeatureArray source({.features = 2, .classes = 2}, three);
  std::vector<float> inputs(4);
  CHECK_THROWS_WITH_AS(source.fill_training(0, {}, {0, 2}, FeatureBatch<float>{inputs, {}, 2, 3}),
                       "FeatureArray: samples have 2 features, but the batch to fill has 3",
                       dtrain::ConfigurationError);
}
