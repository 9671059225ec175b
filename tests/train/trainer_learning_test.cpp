// A language model learns under a trainer, and its ranks agree on what it learned.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"
#include "tiny.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;

// Trains a GPT to count, and compares what the ranks hold afterwards.
template <class S>
void check_learns() {
  CAPTURE(S::describe());
  const data::TokenArray text = counting_text(44, 3);
  std::mutex mutex;
  std::map<std::string, std::map<Index, float>> held;
  std::vector<StepReport> reports;
  run_ranks<S>(
      [&](auto& rank) {
        train::Trainer<TinyGpt, S> trainer(rank, {.learning_rate = 3e-2});
        const auto shape = trainer.batch_shape(8, 6, 2);
        const double before = trainer.evaluate(text, shape).loss();
        CHECK(before == doctest::Approx(std::log(11.0)).epsilon(0.05));
        const StepReport last =
            trainer.fit(text, {.steps = 60, .batch = 8, .micro_batches = 2, .on_step = [&](const StepReport& r) {
                                 reports.push_back(r);
                               }});
        CHECK(last.step == 60);
        CHECK(last.loss < 0.3);
        const auto after = trainer.evaluate(text, shape);
        CHECK(after.tokens == 18);
        CHECK(after.loss() < 0.3);
        CHECK(trainer.clock() == optim::TrainingClock{.updates = 60, .skipped = 0});
        CHECK(trainer.position() == data::Position{.epoch = 480 / 44, .index = 480 % 44});
        CHECK(trainer.memory().total() == rank.device().live_bytes());
        // Every copy of an element has the same bits: of data ranks, of replicated and of tied parameters.
        const std::lock_guard lock(mutex);
        auto& stage = trainer.program().stage();
        for (const auto& parameter : stage.map())
          parallel::for_each_element(parameter, [&](Index local, Index whole) {
            const float value = stage.parameters()[static_cast<std::size_t>(local)];
            const auto [known, added] = held[parameter.name].emplace(whole, value);
            if (!added && std::memcmp(&known->second, &value, sizeof value) != 0)
              FAIL_CHECK("rank ", rank.index(), ": ", parameter.name, "[", whole, "] is ", value, ", elsewhere ",
                         known->second);
          });
      },
      {.threads_per_rank = 1});
  CHECK(held.at("token_embedding.weight").size() == 11 * 8);
  REQUIRE(reports.size() == 60);  // from one rank
  for (std::size_t i = 0; i < reports.size(); ++i) {
    CHECK(reports[i].step == static_cast<Index>(i) + 1);
    CHECK(reports[i].tokens == 48);
    CHECK(reports[i].counted_tokens == 48);
    CHECK(reports[i].learning_rate == 3e-2);
    CHECK(reports[i].gradient_norm > 0.0);
    CHECK(reports[i].seconds > 0.0);
    CHECK_FALSE(reports[i].skipped);
  }
}

TEST_CASE("a run learns, and all copies of a weight keep the same bits") {
  check_learns<Serial>();
  check_learns<ThreeAxes>();
}

TEST_CASE("a text of more tokens than the model knows is refused") {
  run_ranks<Serial>([](auto& rank) {
    train::Trainer<TinyGpt, Serial> trainer(rank);
    const data::TokenArray text({.context = 6, .vocabulary = 12}, counting_samples(4, 6, 12));
    CHECK(sentence_of<ConfigurationError>([&] { trainer.fit(text, {.steps = 1, .batch = 4}); }) ==
          "dtrain: the data has a vocabulary of 12 tokens, but the model only 11.");
    const data::TokenArray longer({.context = 7, .vocabulary = 11}, counting_samples(4, 7, 11));
    CHECK(sentence_of<ConfigurationError>([&] { trainer.fit(longer, {.steps = 1, .batch = 4}); }) ==
          "dtrain: the batch has a context of 7 tokens, but the model takes at most 6.");
  });
}

}  // namespace
