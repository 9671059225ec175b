// How tokens are drawn, what the model sees of the text, and what is refused.
#include "dtrain/train/generate.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "dtrain/core/error.hpp"

namespace {

using namespace dtrain;

// Stands for a trainer whose model of 5 tokens takes up to 8 of them and prefers the successor of the last one.
struct Successor {
  struct Embedding {
    static constexpr Index vocabulary = 5;
  };
  struct Unit {
    template <int>
    using Layer = Embedding;
  };
  struct Model {
    static constexpr bool takes_tokens = true;
    static constexpr Index max_context = 8;
    template <int>
    using UnitOf = Unit;
  };
  struct Program {
    using Element = double;
    using Lowered = Model;
    static constexpr Index classes = 5;
    std::vector<std::vector<std::int32_t>> seen;

    template <class Feed>
    void logits(Index context, Index row, Feed feed, std::span<double> result) {
      std::vector<std::int32_t> inputs(static_cast<std::size_t>(context), -1);
      feed(std::span(inputs));
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = static_cast<std::int32_t>(i) == (inputs[static_cast<std::size_t>(row)] + 1) % 5 ? 2.0 : 0.0;
      inputs.resize(static_cast<std::size_t>(row) + 1);
      seen.push_back(inputs);
    }
  };
  Program held;
  Program& program() { return held; }
};

using Tokens = std::vector<std::int32_t>;

TEST_CASE("at temperature 0 the likeliest token is taken, whatever the seed") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Successor trainer;
    CHECK(generate(trainer, Tokens{1, 2}, 4, {.tokens = 6, .temperature = 0.0, .seed = seed}) ==
          Tokens{3, 4, 0, 1, 2, 3});
  }
}

TEST_CASE("only the likeliest is drawn where top is 1, at any temperature") {
  Successor trainer;
  CHECK(generate(trainer, Tokens{3}, 4, {.tokens = 4, .temperature = 50.0, .top = 1}) == Tokens{4, 0, 1, 2});
}

TEST_CASE("the model sees the last tokens that fit into the context, the prompt's among them") {
  Successor trainer;
  const auto made = generate(trainer, Tokens{4, 3, 2, 1, 0}, 3, {.tokens = 3, .temperature = 0.0});
  CHECK(made == Tokens{1, 2, 3});
  CHECK(trainer.held.seen == std::vector<Tokens>{{2, 1, 0}, {1, 0, 1}, {0, 1, 2}});
  Successor shorter;
  generate(shorter, Tokens{4}, 3, {.tokens = 4, .temperature = 0.0});
  CHECK(shorter.held.seen == std::vector<Tokens>{{4}, {4, 0}, {4, 0, 1}, {0, 1, 2}});
}

TEST_CASE("a seed makes a text, and another seed another") {
  const auto text = [](std::uint64_t seed) {
    Successor trainer;
    return generate(trainer, Tokens{0}, 4, {.tokens = 40, .temperature = 1.0, .seed = seed});
  };
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
  Successor trainer;
  CHECK(generate(trainer, Tokens{0}, 4, {.tokens = 0}).empty());
  CHECK(trainer.held.seen.empty());
}

TEST_CASE("tokens are drawn from the softmax of the logits over the temperature") {
  const std::array logits{0.0, std::log(3.0), std::log(4.0)};  // 1/8, 3/8, 4/8 at temperature 1
  const auto counts = [&](GenerateOptions options) {
    std::array<int, 3> drawn{};
    constexpr int draws = 8000;
    for (int i = 0; i < draws; ++i)
      ++drawn[static_cast<std::size_t>(
          train::detail::draw_token(std::span<const double>(logits), options, (i + 0.5) / draws))];
    return drawn;
  };
  // Evenly spread numbers meet every token exactly as often as it is likely.
  CHECK(counts({.temperature = 1.0}) == std::array{1000, 3000, 4000});
  // At temperature 1/2 the weights are squares: 1, 9, 16 of 26.
  CHECK(counts({.temperature = 0.5}) == std::array{308, 2769, 4923});
  CHECK(counts({.temperature = 1.0, .top = 2}) == std::array{0, 3429, 4571});
  CHECK(counts({.temperature = 1.0, .top = 3}) == std::array{1000, 3000, 4000});
  CHECK(counts({.temperature = 1.0, .top = 100}) == std::array{1000, 3000, 4000});
  CHECK(counts({.temperature = std::numeric_limits<double>::infinity()})[0] == doctest::Approx(2667).epsilon(0.001));
  CHECK(counts({.temperature = 1e-300}) == std::array{0, 0, 8000});
}

template <class E>
std::string refused(Tokens prompt, Index context, GenerateOptions options) {
  Successor trainer;
  try {
    generate(trainer, prompt, context, options);
  } catch (const E& error) {
    CHECK(trainer.held.seen.empty());
    return error.what();
  }
  return "(nothing thrown)";
}

TEST_CASE("what cannot be sampled is refused before the model runs") {
  CHECK(refused<ConfigurationError>({}, 4, {}) ==
        "dtrain: sampling needs a prompt of at least 1 token, and this one is empty.");
  CHECK(refused<ConfigurationError>({1}, 4, {.tokens = -1}) ==
        "dtrain: sampling was asked for -1 tokens at temperature 0.8 among the 0 likeliest; none of the three may be "
        "below 0.");
  CHECK(refused<ConfigurationError>({1}, 4, {.temperature = -0.5}).find("at temperature -0.5") != std::string::npos);
  CHECK(refused<ConfigurationError>({1}, 4, {.temperature = std::nan("")}).find("at temperature nan") !=
        std::string::npos);
  CHECK(refused<ConfigurationError>({1}, 4, {.top = -3}).find("among the -3 likeliest") != std::string::npos);
  CHECK(refused<ConfigurationError>({1}, 9, {}) == "dtrain: sampling with a context of 9 tokens; give 1 to 8.");
  CHECK(refused<ConfigurationError>({1}, 0, {}) == "dtrain: sampling with a context of 0 tokens; give 1 to 8.");
  CHECK(refused<ConfigurationError>({1}, -5, {}) == "dtrain: sampling with a context of -5 tokens; give 1 to 8.");
  CHECK(refused<DataError>({1, 5}, 4, {}) ==
        "dtrain: token 5 at place 1 of the prompt does not lie in the model's vocabulary [0, 5).");
  CHECK(refused<DataError>({-1}, 4, {}) ==
        "dtrain: token -1 at place 0 of the prompt does not lie in the model's vocabulary [0, 5).");
}

}  // namespace
