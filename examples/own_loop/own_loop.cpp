// Trains on data of the program's own, in a loop of the program's own: sums of two digits, modulo 10.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include <dtrain/dtrain.hpp>

namespace {

namespace dt = dtrain;

using Model =
    dt::models::Llama<dt::models::LlamaShape{.vocab = 10, .context = 2, .width = 32, .heads = 2, .layers = 1}>;
using Strategy = dt::Strategy<dt::DataParallel<dt::dynamic>>;

// [snippet data]
/// Two digits are the inputs. Only the second one has a target: the sum.
dt::data::TokenSamples sums() {
  dt::data::TokenSamples samples;
  for (int a = 0; a < 10; ++a)
    for (int b = 0; b < 10; ++b) {
      samples.inputs.insert(samples.inputs.end(), {a, b});
      samples.targets.insert(samples.targets.end(), {dt::data::ignore_index, (a + b) % 10});
    }
  return samples;
}
// [end snippet]

}  // namespace

int main(int argc, char** argv) {
  // [snippet launch]
  const auto body = [](auto& rank) {
    dt::Trainer<Model, Strategy, dt::AdamW> trainer(
        rank, {.learning_rate = dt::LinearDecay{.peak = 1e-2, .warmup = 20, .decay_steps = 400}});
    // [end snippet]

    // [snippet loop]
    const dt::data::TokenArray source({.context = 2, .vocabulary = 10}, sums(), sums());
    const auto batch = trainer.batch_shape(20, source.context());
    std::optional<dt::MetricsFile> metrics;
    if (rank.is_first()) metrics.emplace("own_loop.jsonl");
    double seconds = 0.0;
    for (int step = 0; step < 400; ++step) {
      const dt::StepReport report = trainer.step(source, batch);
      seconds += report.seconds;
      if (metrics) metrics->write(report);
    }
    const double loss = trainer.evaluate(source, batch).loss();  // all ranks take part, and all know the result
    if (metrics) metrics->write_end(trainer.clock().attempts(), loss, Strategy::describe(), seconds);
    // [end snippet]

    // [snippet feed]
    const auto doubles = [](dt::Range samples, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
      for (dt::Index row = 0; row < samples.size(); ++row) {
        const auto digit = static_cast<std::int32_t>((samples.begin + row) % 10);
        const auto at = static_cast<std::size_t>(2 * row);
        if (!inputs.empty()) inputs[at] = inputs[at + 1] = digit;
        if (!targets.empty()) targets[at] = dt::data::ignore_index, targets[at + 1] = 2 * digit % 10;
      }
    };
    trainer.step(batch, doubles);
    // [end snippet]

    // [snippet sample]
    const std::vector<std::int32_t> question{3, 4};
    const auto answer = dt::generate(trainer, question, 2, {.tokens = 1, .temperature = 0.0});
    if (rank.is_first()) std::printf("loss %.4f; 3 + 4 = %d\n", loss, answer.front());
    // [end snippet]
    if (answer.front() != 7) throw dt::Error("the model has not learned to add");
  };
  // [snippet ranks]
  return dt::launch<Strategy>(argc, argv, body, {.ranks = 2, .threads_per_rank = 1});
  // [end snippet]
}
