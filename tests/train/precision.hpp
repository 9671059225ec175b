// Runs of a language model in 16-bit numbers, compared with the same run in float.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "dtrain/testing/precision_comparison.hpp"
#include "dtrain/train/generate.hpp"
#include "tiny.hpp"

namespace dtrain::test {

using testing::RecordedRun;
using testing::RunOptions;

/// Two steps, the second from weights that have moved. The epsilon keeps AdamW from making steps of full length of the
/// signs of gradients that are 0 but for rounding.
inline RunOptions two_steps() {
  return {.samples = 8,
          .context = 6,
          .micro_batches = 2,
          .steps = 2,
          .learning_rate = 1e-3,
          .optimizer = {.epsilon = 1e-3}};
}

/// bfloat16 keeps 8 bits and float16 11, and a dozen roundings lie between a weight and its gradient.
constexpr double bfloat16_bound = 0.02;
constexpr double float16_bound = 0.005;

inline void check_near(const RecordedRun& wide, const RecordedRun& narrow, double bound) {
  CAPTURE(narrow.strategy);
  CHECK_NOTHROW(testing::compare_precision(wide, narrow, bound));
  // Two formats that round differently cannot agree to the bit: the run was one in narrow numbers.
  CHECK_THROWS_AS(testing::compare_precision(wide, narrow, 1e-5), Error);
}

/// Trains on the counting text until it is learnt: from log(11) to far below.
template <class Model, class S, class Format>
void check_learning() {
  CAPTURE(S::describe());
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<Model, S, AdamW, Format> trainer(rank, {.learning_rate = 1e-2});
        const auto text = counting_text();
        const StepReport first = trainer.fit(text, {.steps = 1, .batch = 8, .micro_batches = 2});
        const StepReport last = trainer.fit(text, {.steps = 60, .batch = 8, .micro_batches = 2});
        CHECK(first.loss > 2.2);
        CHECK(last.loss < 0.5);
        if constexpr (std::is_same_v<S, Tensor2>) {
          const std::vector<std::int32_t> prompt{2, 3, 4};
          CHECK(generate(trainer, prompt, 6, {.tokens = 4, .temperature = 0.0}) ==
                std::vector<std::int32_t>{5, 6, 7, 8});
        }
        // The parameters are the master weights, rounded once.
        if constexpr (PrecisionOf<Format>::has_master) {
          using T = typename PrecisionOf<Format>::Parameter;
          const auto masters = trainer.optimizer_states()[0].masters();
          const auto parameters = trainer.program().stage().parameters();
          for (std::size_t i = 0; i < masters.size(); ++i) REQUIRE(parameters[i].bits() == T(masters[i]).bits());
        }
      },
      {.threads_per_rank = 1});
}

}  // namespace dtrain::test
