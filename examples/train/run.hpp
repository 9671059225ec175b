// Trains the model under one strategy.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "batch.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "registry.hpp"

namespace example {

/// The metrics file is emptied when it is opened; that must not happen to a text.
inline void require_separate(const std::string& metrics, const std::vector<std::filesystem::path>& texts) {
  std::error_code code;
  for (const std::filesystem::path& text : texts)
    if (std::filesystem::equivalent(metrics, text, code))
      throw dt::ConfigurationError(
          dt::concatenate("dtrain: --metrics ", metrics, " would overwrite a file of --data; name another file."));
}

/// Builds the program of every rank and makes room for a batch: what was predicted, and what was allocated.
template <class Strategy>
std::vector<dt::parallel::RankReport> allocate(const Options& options) {
  const auto shape = batch_shape<Strategy>(options);
  std::vector<dt::parallel::RankReport> ranks(static_cast<std::size_t>(Strategy::static_ranks));
  dt::run_ranks<Strategy>([&](dt::Rank<Strategy, dt::Host>& rank) {
    dt::Trainer<Model, Strategy, dt::AdamW> trainer(rank);
    trainer.program().prepare(shape, true);
    const auto predicted = dt::parallel::memory_of_rank<Model, Strategy>(rank.index(), shape);
    ranks[static_cast<std::size_t>(rank.index())] = {
        .stage = trainer.program().stage_index(),
        .predicted = {predicted.program, predicted.optimizer},
        .allocated = {trainer.program().allocated(), trainer.memory().optimizer}};
  });
  return ranks;
}

inline void print_text(const dt::data::ByteText& text) {
  std::printf("text: %lld file%s, %lld bytes to train on and %lld held out\n",
              static_cast<long long>(text.files().size()), text.files().size() == 1 ? "" : "s",
              static_cast<long long>(text.training_text().size()),
              static_cast<long long>(text.validation_text().size()));
}

template <class Strategy>
int train(const Options& options) {
  // What can be checked without ranks is checked before anything is started, allocated or written.
  const auto shape = batch_shape<Strategy>(options);
  const Entry& entry = registry().at(options.strategy);
  entry.require_memory(options);
  const std::vector<std::filesystem::path> paths(options.data.begin(), options.data.end());
  const dt::data::ByteText text(paths, {.context = context, .held_out = 0.1});
  require_separate(options.metrics, text.files());
  dt::MetricsFile metrics(options.metrics);
  std::printf("%s\n", dt::parallel::describe(entry.explain(options)).c_str());
  print_text(text);
  std::fflush(stdout);

  // [snippet train]
  return dt::launch<Strategy>(0, nullptr, [&](auto& rank) {
    dt::Trainer<Model, Strategy, dt::AdamW> trainer(
        rank, {.learning_rate =
                   dt::Cosine{.peak = options.learning_rate, .warmup = 100, .minimum = options.learning_rate / 10},
               .optimizer = {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
               .clip = 1.0,
               .seed = static_cast<std::uint64_t>(options.seed)});
    const double before = trainer.evaluate(text, shape).loss();
    if (rank.is_first()) std::printf("validation loss before training: %.4f nats per byte\n", before);
    // [end snippet]

    Progress progress(options.steps);
    const auto begin = std::chrono::steady_clock::now();
    trainer.fit(text, {.steps = options.steps,
                       .batch = options.batch,
                       .micro_batches = shape.micro_batches,
                       .on_step = [&](const dt::StepReport& report) {
                         metrics.write(report);
                         progress.show(report);
                       }});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double after = trainer.evaluate(text, shape).loss();

    const std::vector<std::int32_t> prompt{'\n'};
    const auto sample =
        dt::generate(trainer, prompt, context, {.tokens = 300, .seed = static_cast<std::uint64_t>(options.seed)});
    if (rank.is_first()) {
      metrics.write_end(options.steps, after, options.strategy, seconds);
      std::printf("validation loss after %lld steps: %.4f nats per byte, %.1f s of training\n", options.steps, after,
                  seconds);
      std::printf("a sample of what the model writes:\n%s\n", printable(dt::data::ByteText::decode(sample)).c_str());
      std::printf("metrics are in %s\n", options.metrics.c_str());
    }
  });
}

/// Adds a strategy to those that can be built and trained under.
template <class Strategy>
struct Trained {
  explicit Trained(const char* name) {
    registry()[name].train = &train<Strategy>;
    registry()[name].allocate = &allocate<Strategy>;
  }
};

}  // namespace example
