// Trains 124 million parameters under ZeRO 3 with full recomputation on four ranks of this process for a few steps, and
// shows the peak resident size beside the bytes that were predicted while the program compiled.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <dtrain/dtrain.hpp>

namespace {

namespace dt = dtrain;

// The small model of GPT-2, with a short context.
using Model =
    dt::models::Gpt<dt::models::GptShape{.vocab = 50257, .context = 64, .width = 768, .heads = 12, .layers = 12}>;
using Replicated = dt::Strategy<dt::DataParallel<4>>;
using Sharded = dt::Strategy<dt::DataParallel<4, dt::Zero<3>>>;
using Strategy = dt::Strategy<dt::DataParallel<4, dt::Zero<3>>, dt::Recompute<dt::recompute::Full>>;

constexpr dt::BatchShape batch{.samples = 16, .context = 64, .micro_batches = 2};
constexpr auto predicted = dt::memory<Model, Strategy>(batch);
static_assert(dt::Fits<Model, Strategy, batch, dt::GiB<2>>);

double mebibytes(dt::Index bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

// A line of /proc/self/status, in bytes; 0 where there is none.
dt::Index process_memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    dt::Index kibibytes = 0;
    if (words >> key >> kibibytes && key == name + ":") return kibibytes * 1024;
  }
  return 0;
}

void print_prediction() {
  const auto line = [](const char* strategy, dt::Index largest, dt::Index all) {
    std::printf("%-36s %12.1f %12.1f\n", strategy, mebibytes(largest), mebibytes(all));
  };
  std::printf("predicted, MiB                       largest rank    all ranks\n");
  constexpr auto replicated = dt::memory<Model, Replicated>(batch);
  constexpr auto sharded = dt::memory<Model, Sharded>(batch);
  line("DataParallel<4>", replicated.largest(), replicated.all_ranks);
  line("DataParallel<4, Zero<3>>", sharded.largest(), sharded.all_ranks);
  line("DataParallel<4, Zero<3>>, Full", predicted.largest(), predicted.all_ranks);
  const auto& rank = predicted.stages[0];
  std::printf(
      "of the last: parameters %.1f, gradients %.1f, optimizer %.1f, activations %.1f, logits %.1f, transient "
      "%.1f, gathered %.1f, buckets %.1f\n",
      mebibytes(rank.program.parameters), mebibytes(rank.program.gradients), mebibytes(rank.optimizer),
      mebibytes(rank.program.activations), mebibytes(rank.program.logits), mebibytes(rank.program.transient),
      mebibytes(rank.program.gathered), mebibytes(rank.program.buckets));
}

}  // namespace

int main(int argc, char** argv) {
  // Options of the other benchmarks may come along.
  const int steps = argc > 1 && argv[1][0] != '-' ? std::max(std::atoi(argv[1]), 1) : 3;
  print_prediction();
  std::fflush(stdout);
  const dt::Index before = process_memory("VmRSS");
  std::array<dt::Index, 4> allocated{};
  std::array<dt::Index, 4> scratch{};
  const int code = dt::launch<Strategy>(0, nullptr, [&](auto& rank) {
    dt::Trainer<Model, Strategy> trainer(rank, {.learning_rate = 1e-4});
    for (int step = 0; step < steps; ++step) {
      const dt::StepReport report = trainer.step(batch, [&](dt::Range samples, auto tokens, auto targets) {
        const dt::RandomStream drawn(1, dt::hash_name("tokens"), 0);
        const auto token = [&](std::size_t i) {
          return static_cast<std::int32_t>(drawn.bits(static_cast<std::uint64_t>(samples.begin * 64) + i) % 50257);
        };
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = token(i);
        for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = token(i + 1);
      });
      if (rank.is_first()) std::printf("step %d: loss %.4f, %.1f s\n", step + 1, report.loss, report.seconds);
      std::fflush(stdout);
    }
    allocated[static_cast<std::size_t>(rank.index())] = rank.device().live_bytes();
    scratch[static_cast<std::size_t>(rank.index())] = rank.device().scratch_bytes();
  });
  dt::Index all = 0;
  dt::Index all_scratch = 0;
  for (std::size_t r = 0; r < allocated.size(); ++r) {
    all += allocated[r];
    all_scratch += scratch[r];
  }
  std::printf("predicted for all ranks %.1f MiB, allocated %.1f, scratch of operations %.1f\n",
              mebibytes(predicted.all_ranks), mebibytes(all), mebibytes(all_scratch));
  std::printf("resident before %.1f MiB, at the peak %.1f\n", mebibytes(before), mebibytes(process_memory("VmHWM")));
  return code != 0 || all != predicted.all_ranks ? 1 : 0;
}
