#include "dtrain/data/token_array.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using dtrain::Index;
using dtrain::Range;
using dtrain::data::ignore_index;
using dtrain::data::Position;
using dtrain::data::TokenArray;
using dtrain::data::TokenArrayOptions;
using dtrain::data::TokenSamples;

namespace {

TokenSamples numbered(Index samples, Index context) {
  TokenSamples result;
  for (Index i = 0; i < samples * context; ++i) {
    result.inputs.push_back(static_cast<std::int32_t>(i));
    result.targets.push_back(i % context == 0 ? ignore_index : static_cast<std::int32_t>(i - 1));
  }
  return result;
}

TokenSamples training(const TokenArray& source, std::uint64_t seed, Position start, Range rows) {
  const auto size = static_cast<std::size_t>(rows.size() * source.context());
  TokenSamples result{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
  source.fill_training(seed, start, rows, {result.inputs, result.targets, rows.size(), source.context()});
  return result;
}

template <class Kind>
std::string refusal(TokenArrayOptions options, const TokenSamples& samples, const TokenSamples& validation = {}) {
  try {
    TokenArray(options, samples, validation);
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("samples come in the order given, over and over, when they are not shuffled") {
  const TokenArray source({.context = 3, .vocabulary = 12, .shuffle = false}, numbered(4, 3));
  CHECK(source.training_samples() == 4);
  CHECK(source.validation_samples() == 0);
  const TokenSamples rows = training(source, 5, {0, 2}, {1, 4});
  CHECK(rows.inputs == std::vector<std::int32_t>{9, 10, 11, 0, 1, 2, 3, 4, 5});
  CHECK(rows.targets == std::vector<std::int32_t>{-100, 9, 10, -100, 0, 1, -100, 3, 4});
}

// fault F9
TEST_CASE("shuffled samples: each once per epoch, epochs differ, rows do not depend on who reads them") {
  const TokenArray source({.context = 1, .vocabulary = 100}, numbered(100, 1));
  const auto first = training(source, 1, {0, 0}, {0, 100}).inputs;
  const auto second = training(source, 1, {1, 0}, {0, 100}).inputs;
  CHECK(first != second);
  std::vector<std::int32_t> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == numbered(100, 1).inputs);
  const auto part = training(source, 1, {0, 40}, {5, 15}).inputs;
  CHECK(part == std::vector<std::int32_t>(first.begin() + 45, first.begin() + 55));
}

TEST_CASE("validation rows past the end are ignored") {
  const TokenArray source({.context = 2, .vocabulary = 9}, numbered(1, 2), {{7, 8}, {8, ignore_index}});
  std::vector<std::int32_t> inputs(6, -1), targets(6, -1);
  source.fill_validation({0, 3}, {inputs, targets, 3, 2});
  CHECK(inputs == std::vector<std::int32_t>{7, 8, 0, 0, 0, 0});
  CHECK(targets == std::vector<std::int32_t>{8, -100, -100, -100, -100, -100});
}

TEST_CASE("malformed samples are refused with the numbers") {
  using dtrain::ConfigurationError;
  using dtrain::DataError;
  CHECK(refusal<ConfigurationError>({.context = 0, .vocabulary = 5}, {}) ==
        "TokenArray: context is 0 and vocabulary 5, but both must be positive");
  CHECK(refusal<DataError>({.context = 2, .vocabulary = 5}, {}) == "TokenArray: there is no training sample");
  CHECK(refusal<DataError>({.context = 2, .vocabulary = 5}, {{1, 2}, {1}}) ==
        "TokenArray: training has 2 inputs but 1 targets");
  CHECK(refusal<DataError>({.context = 2, .vocabulary = 5}, {{1, 2, 3}, {1, 2, 3}}) ==
        "TokenArray: training has 3 tokens, not a multiple of the context, 2");
  CHECK(refusal<DataError>({.context = 2, .vocabulary = 5}, {{1, 5}, {1, 2}}) ==
        "TokenArray: training holds the token 5, outside the vocabulary of 5");
  CHECK(refusal<DataError>({.context = 2, .vocabulary = 5}, {{1, 2}, {1, 2}}, {{1, 2}, {-1, 2}}) ==
        "TokenArray: validation holds the target -1, outside the vocabulary of 5 and not the ignored -100");
}
