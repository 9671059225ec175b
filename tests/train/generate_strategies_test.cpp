// A model writes the same text under every strategy.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "dtrain/train/generate.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

// A context of 5 does not divide over two tensor ranks, nor does a vocabulary of 11.
using Writer = models::Gpt<models::GptShape{
    .vocab = 11, .context = 5, .width = 8, .heads = 2, .layers = 2, .hidden = 16, .tied = false}>;

// What every rank of a strategy writes, in turn, from one trainer.
template <class S>
std::vector<std::int32_t> written() {
  std::vector<std::vector<std::int32_t>> texts(static_cast<std::size_t>(S::static_ranks));
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<Writer, S, AdamW, double> trainer(rank);
        // Weights of a size at which one token is likelier than another.
        for (double& weight : trainer.program().stage().parameters()) weight *= 20.0;
        auto& text = texts[static_cast<std::size_t>(rank.index())];
        const auto write = [&](std::vector<std::int32_t> prompt, GenerateOptions options) {
          const auto made = generate(trainer, prompt, 5, options);
          CHECK(made.size() == static_cast<std::size_t>(options.tokens));
          text.insert(text.end(), made.begin(), made.end());
        };
        write({3}, {.tokens = 12, .temperature = 0.0});
        write({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {.tokens = 12, .temperature = 1.0, .seed = 5});
        write({10}, {.tokens = 12, .temperature = 2.0, .top = 4});
      },
      {.threads_per_rank = 1});
  for (const auto& text : texts) CHECK(text == texts[0]);
  return texts[0];
}

TEST_CASE("the same tokens under every strategy, on every rank") {
  const auto expected = written<Serial>();
  REQUIRE(expected.size() == 36);
  // A text of one token would prove little.
  CHECK(std::set(expected.begin(), expected.end()).size() >= 5);
  CHECK(written<Data2>() == expected);
  CHECK(written<Tensor2>() == expected);
  CHECK(written<Sequence2>() == expected);
  CHECK(written<Pipeline2>() == expected);
  CHECK(written<ThreeAxes>() == expected);
}

}  // namespace
