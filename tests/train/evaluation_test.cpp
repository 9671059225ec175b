// The loss over the held-out part: the same number under every strategy.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dtrain/data/byte_text.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

using ByteGpt =
    models::Gpt<models::GptShape{.vocab = 256, .context = 6, .width = 8, .heads = 2, .layers = 2, .hidden = 16}>;

data::ByteText some_text() {
  std::string bytes;
  for (int i = 0; i < 700; ++i) bytes += static_cast<char>((i * i + 7 * i) % 251);
  return data::ByteText::from_memory(bytes, {.context = 6, .held_out = 0.1});
}

template <class S>
std::vector<double> evaluate_all(const std::vector<Index>& batches) {
  const data::ByteText text = some_text();
  std::vector<double> losses(batches.size());
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<ByteGpt, S, AdamW, double> trainer(rank);
        for (std::size_t b = 0; b < batches.size(); ++b) {
          const auto report = trainer.evaluate(text, trainer.batch_shape(batches[b], 6));
          // Every held-out byte but the first is predicted once.
          CHECK(report.tokens == 69);
          if (rank.is_first()) losses[b] = report.loss();
        }
      },
      {.threads_per_rank = 1});
  return losses;
}

TEST_CASE("evaluation covers the whole held-out part once, under every strategy and batch") {
  REQUIRE(some_text().validation_text().size() == 70);
  const double expected = evaluate_all<Serial>({1})[0];
  CHECK(expected == doctest::Approx(std::log(256.0)).epsilon(0.05));
  for (const double loss : evaluate_all<Serial>({2, 5, 12, 100}))
    CHECK(loss == doctest::Approx(expected).epsilon(1e-12));
  for (const double loss : evaluate_all<Sequence2>({1, 5})) CHECK(loss == doctest::Approx(expected).epsilon(1e-12));
  for (const double loss : evaluate_all<ThreeAxes>({2, 4, 10})) CHECK(loss == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("where nothing is held out, nothing is evaluated") {
  run_ranks<Serial>([](auto& rank) {
    train::Trainer<ByteGpt, Serial, AdamW, double> trainer(rank);
    const auto text = data::ByteText::from_memory(std::string(100, 'x'), {.context = 6, .held_out = 0.0});
    const auto report = trainer.evaluate(text, trainer.batch_shape(4, 6));
    CHECK(report.tokens == 0);
    CHECK(report.loss() == 0.0);
  });
}

}  // namespace
