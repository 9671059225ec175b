// Trains the model under one strategy, and explains the strategy.
#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "registry.hpp"

namespace example {

inline void print_sample(const std::vector<std::int32_t>& tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += static_cast<char>(token);
  std::printf("a sample of what the model writes:\n%s\n", text.c_str());
}

template <class Strategy>
dt::parallel::BatchShape batch_shape(const Options& options) {
  return dt::parallel::deal_out(options.batch, context, static_cast<int>(options.micro_batches), Strategy::Data::degree,
                                Strategy::Pipeline::degree);
}

template <class Strategy>
int explain(const Options& options) {
  const auto shape = batch_shape<Strategy>(options);
  std::printf("%s", dt::explain<Model, Strategy>(shape).c_str());
  return 0;
}

template <class Strategy>
int train(const Options& options) {
  // What can be checked without ranks is checked before anything is started, allocated or written.
  const auto shape = batch_shape<Strategy>(options);
  std::vector<std::filesystem::path> paths(options.data.begin(), options.data.end());
  const dt::data::ByteText text(paths, {.context = context, .held_out = 0.1});
  dt::MetricsFile metrics(options.metrics);
  std::printf("%s\n", dt::explain<Model, Strategy>(shape).c_str());

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
      print_sample(sample);
      std::printf("metrics are in %s\n", options.metrics.c_str());
    }
  });
}

/// Adds a strategy to the registry.
template <class Strategy>
struct Compiled {
  explicit Compiled(const char* name) { registry()[name] = {&train<Strategy>, &explain<Strategy>}; }
};

}  // namespace example
