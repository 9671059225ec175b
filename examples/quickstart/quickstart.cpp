// A small GPT learns to write text under data, pipeline and tensor parallelism, on eight ranks that are threads.
// [snippet program]
#include <cstdio>

#include <dtrain/dtrain.hpp>

namespace dt = dtrain;

using Model = dt::models::Gpt<dt::models::GptShape{.vocab = 256, .context = 32, .width = 32, .heads = 4, .layers = 2}>;
using Strategy = dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2, dt::schedule::OneForwardOneBackward>,
                              dt::TensorParallel<2, dt::SequenceParallel>>;

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : __FILE__;  // without a file it learns its own source
  return dt::launch<Strategy>(argc, argv, [&](auto& rank) {
    const dt::data::ByteText text(path, {.context = 32});
    dt::Trainer<Model, Strategy, dt::AdamW> trainer(rank, {.learning_rate = dt::Cosine{.peak = 1e-2, .warmup = 10}});
    const dt::StepReport last = trainer.fit(text, {.steps = 100, .batch = 16, .micro_batches = 4});
    const auto written = dt::generate(trainer, dt::data::ByteText::encode("dt::"), 32, {.tokens = 60});
    if (rank.is_first())
      std::printf("loss %.3f nats per byte; it writes: dt::%s\n", last.loss,
                  dt::data::ByteText::decode(written).c_str());
  });
}
// [end snippet]
