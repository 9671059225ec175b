// The training step of two GPT shapes beside the plain BLAS time of the same matrix products, in one run.
//
// `blas/...` runs nothing but the matrix products of a step (forward, input gradient, weight gradient of every linear
// layer), on one core. `step/...` is a whole training step: forward, backward, clipping, AdamW. The counter `flops` is
// the step's FLOPs per second, counted as 6 per parameter and token plus the causal half of attention.
#include <benchmark/benchmark.h>

#include <dtrain/dtrain.hpp>
#include <vector>

namespace {

namespace dt = dtrain;
using dt::Index;
using dt::Matrix;

struct SmallJob {
  static constexpr dt::models::GptShape shape{.vocab = 256, .context = 64, .width = 128, .heads = 4, .layers = 4};
  static constexpr Index batch = 12;
};
struct LargeJob {
  static constexpr dt::models::GptShape shape{.vocab = 256, .context = 256, .width = 384, .heads = 6, .layers = 6};
  static constexpr Index batch = 8;
};

template <class Job>
constexpr Index tokens = Job::batch * Job::shape.context;

// The linear layers of a step: outputs and inputs.
template <class Job>
std::vector<std::pair<Index, Index>> linear_layers() {
  const Index width = Job::shape.width;
  std::vector<std::pair<Index, Index>> layers;
  for (int l = 0; l < Job::shape.layers; ++l)
    layers.insert(layers.end(), {{3 * width, width}, {width, width}, {4 * width, width}, {width, 4 * width}});
  layers.push_back({Job::shape.vocab, width});
  return layers;
}

template <class Job>
double step_flops() {
  double flops = 0.0;
  for (const auto& [outputs, inputs] : linear_layers<Job>())
    flops += 6.0 * double(outputs) * double(inputs) * double(tokens<Job>);
  const double attention = 2.0 * double(Job::shape.context + 1) * double(Job::shape.width) * Job::shape.layers;
  return flops + 3.0 * attention * double(tokens<Job>);
}

void report(benchmark::State& state, double flops) {
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

template <class Job>
void blas(benchmark::State& state) {
  dt::Host device;
  const auto layers = linear_layers<Job>();
  Index largest = 0;
  Index weights = 0;
  for (const auto& [outputs, inputs] : layers) {
    largest = std::max({largest, outputs, inputs});
    weights += outputs * inputs;
  }
  const auto rows = tokens<Job>;
  std::vector<float> x(static_cast<std::size_t>(rows * largest), 0.5f);
  std::vector<float> y(static_cast<std::size_t>(rows * largest), 0.25f);
  std::vector<float> weight(static_cast<std::size_t>(weights), 0.125f);
  std::vector<float> gradient(static_cast<std::size_t>(weights), 0.0f);
  double flops = 0.0;
  for (const auto& [outputs, inputs] : layers) flops += 6.0 * double(outputs) * double(inputs) * double(rows);
  for (auto _ : state) {
    Index at = 0;
    for (const auto& [outputs, inputs] : layers) {
      const Matrix<float> in(x.data(), rows, inputs);
      const Matrix<float> out(y.data(), rows, outputs);
      const Matrix<float> w(weight.data() + at, outputs, inputs);
      const Matrix<float> dw(gradient.data() + at, outputs, inputs);
      dt::product(device, 1.0f, Matrix<const float>(in), dt::Transpose::no, Matrix<const float>(w), dt::Transpose::yes,
                  0.0f, out);
      dt::product(device, 1.0f, Matrix<const float>(out), dt::Transpose::yes, Matrix<const float>(in),
                  dt::Transpose::no, 0.0f, dw);
      dt::product(device, 1.0f, Matrix<const float>(out), dt::Transpose::no, Matrix<const float>(w), dt::Transpose::no,
                  0.0f, in);
      at += outputs * inputs;
    }
    benchmark::DoNotOptimize(gradient.data());
    // Products of products would overflow; the values are of no importance, their being finite is.
    std::fill(x.begin(), x.end(), 0.5f);
  }
  report(state, flops);
}

template <class Job, class Strategy, int ThreadsPerRank>
void step(benchmark::State& state) {
  using Model = dt::models::Gpt<Job::shape>;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 26);
  const auto source = dt::data::ByteText::from_memory(text, {.context = Job::shape.context});
  dt::run_ranks<Strategy>(
      [&](auto& rank) {
        dt::Trainer<Model, Strategy, dt::AdamW> trainer(rank);
        const auto shape = trainer.batch_shape(Job::batch, Job::shape.context);
        for (int warm_up = 0; warm_up < 2; ++warm_up) trainer.step(source, shape);
        // Rank 0 owns the clock; the others follow it from step to step.
        std::array<int, 1> more{1};
        if (rank.is_first()) {
          for (auto _ : state) {
            rank.world().broadcast(std::span(more), 0).wait();
            trainer.step(source, shape);
          }
          more[0] = 0;
          rank.world().broadcast(std::span(more), 0).wait();
        } else {
          for (rank.world().broadcast(std::span(more), 0).wait(); more[0] == 1;
               rank.world().broadcast(std::span(more), 0).wait())
            trainer.step(source, shape);
        }
      },
      {.threads_per_rank = ThreadsPerRank});
  report(state, step_flops<Job>());
}

using dt::Serial;
using Data = dt::Strategy<dt::DataParallel<2>>;
using Tensor = dt::Strategy<dt::TensorParallel<2>>;

BENCHMARK(blas<SmallJob>)->Name("blas/small/1 core")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<SmallJob, Serial, 1>)->Name("step/small/1 core")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<SmallJob, Serial, 2>)->Name("step/small/2 threads")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<SmallJob, Data, 1>)->Name("step/small/data 2")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<SmallJob, Tensor, 1>)->Name("step/small/tensor 2")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(blas<LargeJob>)->Name("blas/large/1 core")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<LargeJob, Serial, 1>)->Name("step/large/1 core")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<LargeJob, Serial, 2>)->Name("step/large/2 threads")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<LargeJob, Data, 1>)->Name("step/large/data 2")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step<LargeJob, Tensor, 1>)->Name("step/large/tensor 2")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
