// Samples from a trained language model, under any strategy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::train {

/// How tokens are drawn.
struct GenerateOptions {
  Index tokens = 200;
  /// Logits are divided by it; 0 takes the likeliest token always.
  double temperature = 0.8;
  /// Only the so many likeliest tokens are drawn from; 0: all.
  Index top = 0;
  std::uint64_t seed = 1;
};

namespace detail {

// Draws an index from softmax(logits / temperature) with a uniform number in (0, 1).
template <class T>
std::int32_t draw_token(std::span<const T> logits, const GenerateOptions& options, double uniform) {
  const auto begin = logits.begin();
  const auto likeliest = std::max_element(begin, logits.end());
  if (options.temperature == 0.0) return static_cast<std::int32_t>(likeliest - begin);
  double least = -std::numeric_limits<double>::infinity();
  if (options.top > 0 && options.top < static_cast<Index>(logits.size())) {
    std::vector<T> sorted(begin, logits.end());
    std::nth_element(sorted.begin(), sorted.begin() + (options.top - 1), sorted.end(), std::greater<>());
    least = static_cast<double>(sorted[static_cast<std::size_t>(options.top - 1)]);
  }
  const auto weight = [&](T logit) {
    return static_cast<double>(logit) < least
               ? 0.0
               : std::exp((static_cast<double>(logit) - static_cast<double>(*likeliest)) / options.temperature);
  };
  double sum = 0.0;
  for (const T logit : logits) sum += weight(logit);
  double rest = uniform * sum;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((rest -= weight(logits[i])) <= 0.0) return static_cast<std::int32_t>(i);
  return static_cast<std::int32_t>(likeliest - begin);
}

// Before any rank waits for another: all see the same numbers and refuse them alike.
inline void check_generation(std::span<const std::int32_t> prompt, Index context, Index max_context, Index vocabulary,
                             const GenerateOptions& options) {
  if (prompt.empty())
    throw ConfigurationError("dtrain: sampling needs a prompt of at least 1 token, and this one is empty.");
  if (options.tokens < 0 || !(options.temperature >= 0.0) || options.top < 0)
    throw ConfigurationError(concatenate("dtrain: sampling was asked for ", options.tokens, " tokens at temperature ",
                                         options.temperature, " among the ", options.top,
                                         " likeliest; none of the three may be below 0."));
  if (context < 1 || (max_context > 0 && context > max_context))
    throw ConfigurationError(concatenate(
        "dtrain: sampling with a context of ", context, " tokens",
        max_context > 0 ? concatenate("; give 1 to ", max_context) : std::string("; give at least 1"), "."));
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= vocabulary)
      throw DataError(concatenate("dtrain: token ", prompt[i], " at place ", i,
                                  " of the prompt does not lie in the model's vocabulary [0, ", vocabulary, ")."));
}

}  // namespace detail

/// Continues `prompt` by `options.tokens` tokens and returns those, the same on all ranks. `context` is the number of
/// tokens the model sees at once: the last ones. Called by all ranks together.
/// Throws, on every rank, ConfigurationError for an empty prompt or options out of range, and DataError for a token of
/// the prompt that the model does not know.
template <class Trainer>
std::vector<std::int32_t> generate(Trainer& trainer, std::span<const std::int32_t> prompt, Index context,
                                   const GenerateOptions& options = {}) {
  using Program = typename Trainer::Program;
  static_assert(Program::Lowered::takes_tokens, "dtrain: only a model of tokens can be sampled from");
  constexpr Index vocabulary = Program::Lowered::template UnitOf<0>::template Layer<0>::vocabulary;
  detail::check_generation(prompt, context, Program::Lowered::max_context, vocabulary, options);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::vector<typename Program::Element> logits(static_cast<std::size_t>(Program::classes));
  const RandomStream random(options.seed, hash_name("generate"));
  for (Index t = 0; t < options.tokens; ++t) {
    const Index seen = std::min(context, static_cast<Index>(text.size()));
    const auto window = std::span(text).last(static_cast<std::size_t>(seen));
    // Tokens behind the window are not seen by it: attention is causal.
    trainer.program().logits(
        context, seen - 1,
        [&](std::span<std::int32_t> inputs) {
          std::fill(inputs.begin(), inputs.end(), 0);
          std::copy(window.begin(), window.end(), inputs.begin());
        },
        std::span(logits));
    using Element = typename Program::Element;
    text.push_back(
        detail::draw_token(std::span<const Element>(logits), options, random.uniform(static_cast<std::uint64_t>(t))));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace dtrain::train

namespace dtrain {
using train::generate;
using train::GenerateOptions;
}  // namespace dtrain
