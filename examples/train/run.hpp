// Trains the model under one strategy, and explains the strategy.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "model.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "registry.hpp"

namespace example {

template <class Strategy>
dt::parallel::BatchShape batch_shape(const Options& options) {
  return dt::parallel::deal_out(options.batch, context, static_cast<int>(options.micro_batches), Strategy::Data::degree,
                                Strategy::Pipeline::degree);
}

/// Refuses what would not fit into this machine's memory: the bytes of every rank are known before any is allocated.
template <class Strategy>
void require_memory(const Options& options, const dt::parallel::BatchShape& shape) {
  const auto program = dt::parallel::explanation_of<Model, Strategy>(shape);
  double needed = 0.0;
  for (const auto& stage : program.stages) needed += static_cast<double>(stage.total_bytes());
  needed *= static_cast<double>(program.ranks) / static_cast<double>(program.stages.size());
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;
  if (there > 0.0 && needed > there)
    throw dt::ConfigurationError(dt::concatenate("dtrain: a batch of ", options.batch, " sequences under ",
                                                 options.strategy, " needs ", needed / gibibyte,
                                                 " GiB on all ranks together, but this machine has ", there / gibibyte,
                                                 " GiB; choose a smaller --batch, or more --micro-batches."));
}

/// The metrics file is emptied when it is opened; that must not happen to a text.
inline void require_separate(const std::string& metrics, const std::vector<std::filesystem::path>& texts) {
  std::error_code code;
  for (const std::filesystem::path& text : texts)
    if (std::filesystem::equivalent(metrics, text, code))
      throw dt::ConfigurationError(
          dt::concatenate("dtrain: --metrics ", metrics, " would overwrite a file of --data; name another file."));
}

template <class Strategy>
int explain(const Options& options) {
  const auto shape = batch_shape<Strategy>(options);
  std::printf("%s", dt::explain<Model, Strategy>(shape).c_str());
  return 0;
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
  require_memory<Strategy>(options, shape);
  const std::vector<std::filesystem::path> paths(options.data.begin(), options.data.end());
  const dt::data::ByteText text(paths, {.context = context, .held_out = 0.1});
  require_separate(options.metrics, text.files());
  dt::MetricsFile metrics(options.metrics);
  std::printf("%s\n", dt::explain<Model, Strategy>(shape).c_str());
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

/// Adds a strategy to the registry.
template <class Strategy>
struct Compiled {
  explicit Compiled(const char* name) { registry()[name] = {&train<Strategy>, &explain<Strategy>}; }
};

}  // namespace example
