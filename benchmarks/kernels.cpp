// Time of each host operation at the sizes of a small GPT (12 samples of 64 tokens, width 128, 4 heads, 256 words).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/random.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/attention.hpp"
#include "dtrain/ops/host/cross_entropy.hpp"
#include "dtrain/ops/host/dropout.hpp"
#include "dtrain/ops/host/embedding.hpp"
#include "dtrain/ops/host/gelu.hpp"
#include "dtrain/ops/host/layer_norm.hpp"
#include "dtrain/ops/host/linear.hpp"
#include "dtrain/ops/host/optimizer.hpp"
#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/ops/host/rms_norm.hpp"
#include "dtrain/ops/host/rotary.hpp"
#include "dtrain/ops/host/swiglu.hpp"

namespace {

using namespace dtrain;

constexpr Index rows = 768, width = 128, hidden = 512, vocabulary = 256, context = 64, heads = 4;

struct Buffer {
  Index rows, columns;
  std::vector<float> elements;
  Buffer(Index rows_, Index columns_, std::uint64_t seed = 1)
      : rows(rows_), columns(columns_), elements(static_cast<std::size_t>(rows_ * columns_)) {
    const RandomStream stream(seed, hash_name("benchmark"));
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(stream.normal(i));
  }
  Matrix<float> view() { return {elements.data(), rows, columns}; }
  std::span<float> span() { return elements; }
};

/// `floats`: elements read and written by one call.
void count_bytes(benchmark::State& state, Index floats) {
  state.SetBytesProcessed(state.iterations() * floats * static_cast<Index>(sizeof(float)));
}
void count_operations(benchmark::State& state, Index operations) {
  state.counters["FLOP/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * operations), benchmark::Counter::kIsRate);
}

Host make_device(const benchmark::State& state) { return Host({.threads = state.range(0)}); }

template <Index Inputs, Index Outputs>
void linear_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, Inputs), weight(Outputs, Inputs), bias(1, Outputs), y(rows, Outputs);
  for (auto _ : state) ops::linear_forward(device, x.view(), weight.view(), bias.span(), y.view());
  count_operations(state, 2 * rows * Inputs * Outputs);
}
template <Index Inputs, Index Outputs>
void linear_backward_input(benchmark::State& state) {
  Host device = make_device(state);
  Buffer dy(rows, Outputs), weight(Outputs, Inputs), dx(rows, Inputs);
  for (auto _ : state) ops::linear_backward_input(device, dy.view(), weight.view(), dx.view());
  count_operations(state, 2 * rows * Inputs * Outputs);
}
template <Index Inputs, Index Outputs>
void linear_backward_weight(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, Inputs), dy(rows, Outputs), dweight(Outputs, Inputs);
  for (auto _ : state) ops::linear_backward_weight(device, x.view(), dy.view(), dweight.view());
  count_operations(state, 2 * rows * Inputs * Outputs);
}
void bias_backward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer dy(rows, hidden), dbias(1, hidden);
  for (auto _ : state) ops::bias_backward(device, dy.view(), dbias.span());
  count_bytes(state, rows * hidden);
}

template <Index Context, Index HeadSize>
struct AttentionBuffers {
  ops::AttentionShape shape;
  Index samples = rows / context * context / Context;
  Buffer qkv, y, log_sums, dy, dqkv;
  explicit AttentionBuffers(double dropout)
      : shape{.heads = width / HeadSize,
              .key_value_heads = width / HeadSize,
              .head_size = HeadSize,
              .context = Context,
              .dropout = dropout},
        samples(Context > rows ? 1 : rows / Context),
        qkv(samples * Context, 3 * width),
        y(samples * Context, width),
        log_sums(1, samples * Context * shape.heads),
        dy(samples * Context, width),
        dqkv(samples * Context, 3 * width) {}
  /// Operations of one product of all heads, of which causal attention needs half.
  [[nodiscard]] Index product() const { return samples * Context * Context * width; }
};
template <Index Context, Index HeadSize>
void attention_forward(benchmark::State& state) {
  Host device = make_device(state);
  AttentionBuffers<Context, HeadSize> at(static_cast<double>(state.range(1)) / 100);
  for (auto _ : state)
    ops::attention_forward(device, at.shape, at.qkv.view(), at.y.view(), at.log_sums.span(), RandomStream(), 0, 0, 4);
  count_operations(state, 2 * at.product());
}
template <Index Context, Index HeadSize>
void attention_backward(benchmark::State& state) {
  Host device = make_device(state);
  AttentionBuffers<Context, HeadSize> at(static_cast<double>(state.range(1)) / 100);
  ops::attention_forward(device, at.shape, at.qkv.view(), at.y.view(), at.log_sums.span(), RandomStream(), 0, 0, 4);
  for (auto _ : state)
    ops::attention_backward(device, at.shape, at.qkv.view(), at.y.view(), at.log_sums.span(), at.dy.view(),
                            at.dqkv.view(), RandomStream(), 0, 0, 4);
  count_operations(state, 5 * at.product());
}

void layer_norm_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), gamma(1, width), beta(1, width), y(rows, width), statistics(rows, 2);
  for (auto _ : state)
    ops::layer_norm_forward(device, x.view(), gamma.span(), beta.span(), 1e-5f, y.view(), statistics.view());
  count_bytes(state, 2 * rows * width);
}
void layer_norm_backward_input(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), gamma(1, width), dy(rows, width), dx(rows, width), statistics(rows, 2);
  for (auto _ : state)
    ops::layer_norm_backward_input(device, x.view(), gamma.span(), statistics.view(), dy.view(), dx.view());
  count_bytes(state, 3 * rows * width);
}
void layer_norm_backward_weight(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), dgamma(1, width), dbeta(1, width), dy(rows, width), statistics(rows, 2);
  for (auto _ : state)
    ops::layer_norm_backward_weight(device, x.view(), statistics.view(), dy.view(), dgamma.span(), dbeta.span());
  count_bytes(state, 2 * rows * width);
}
void rms_norm_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), gamma(1, width), y(rows, width), statistics(rows, 1);
  for (auto _ : state) ops::rms_norm_forward(device, x.view(), gamma.span(), 1e-5f, y.view(), statistics.view());
  count_bytes(state, 2 * rows * width);
}

template <ops::GeluKind Kind>
void gelu_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, hidden), y(rows, hidden);
  for (auto _ : state) ops::gelu_forward(device, Kind, x.view(), y.view());
  count_bytes(state, 2 * rows * hidden);
}
template <ops::GeluKind Kind>
void gelu_backward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, hidden), dy(rows, hidden), dx(rows, hidden);
  for (auto _ : state) ops::gelu_backward(device, Kind, x.view(), dy.view(), dx.view());
  count_bytes(state, 3 * rows * hidden);
}
void swiglu_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, 2 * hidden), y(rows, hidden);
  for (auto _ : state) ops::swiglu_forward(device, x.view(), y.view());
  count_bytes(state, 3 * rows * hidden);
}
void swiglu_backward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, 2 * hidden), dy(rows, hidden), dx(rows, 2 * hidden);
  for (auto _ : state) ops::swiglu_backward(device, x.view(), dy.view(), dx.view());
  count_bytes(state, 5 * rows * hidden);
}
void rotary_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), y(rows, width);
  std::vector<float> table(static_cast<std::size_t>(ops::rotary_table_size(context, width / heads)));
  ops::rotary_table(context, width / heads, 10000, std::span(table));
  for (auto _ : state) ops::rotary_forward(device, x.view(), heads, width / heads, table, 0, context, y.view());
  count_bytes(state, 2 * rows * width);
}
void dropout_forward(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), y(rows, width);
  for (auto _ : state) ops::dropout_forward(device, 0.1, RandomStream(1, 2), x.view(), y.view(), 0, 0, width);
  count_bytes(state, 2 * rows * width);
}

std::vector<std::int32_t> tokens() {
  std::vector<std::int32_t> list(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = static_cast<std::int32_t>(i * 37 % vocabulary);
  return list;
}
void embedding_forward(benchmark::State& state) {
  Host device = make_device(state);
  const auto list = tokens();
  Buffer weight(vocabulary, width), y(rows, width);
  for (auto _ : state) ops::embedding_forward(device, list, weight.view(), {0, vocabulary}, y.view());
  count_bytes(state, 2 * rows * width);
}
void embedding_backward(benchmark::State& state) {
  Host device = make_device(state);
  const auto list = tokens();
  Buffer dweight(vocabulary, width), dy(rows, width);
  for (auto _ : state) ops::embedding_backward(device, list, dy.view(), {0, vocabulary}, dweight.view());
  count_bytes(state, 3 * rows * width);
}
void cross_entropy(benchmark::State& state) {
  Host device = make_device(state);
  const auto list = tokens();
  Buffer logits(rows, vocabulary), maximum(1, rows), sum(1, rows), target(1, rows);
  const Range all{0, vocabulary};
  for (auto _ : state) {
    ops::cross_entropy_row_max(device, logits.view(), all, vocabulary, maximum.span());
    ops::cross_entropy_row_sum(device, logits.view(), all, vocabulary, list, maximum.span(), sum.span(), target.span());
    benchmark::DoNotOptimize(ops::cross_entropy_loss(maximum.span(), sum.span(), target.span(), list, -1));
    ops::cross_entropy_backward(device, logits.view(), all, vocabulary, list, maximum.span(), sum.span(), 1.0, -1);
  }
  count_bytes(state, 4 * rows * vocabulary);
}

constexpr Index parameters = 1 << 20;
void adamw_update(benchmark::State& state) {
  Host device = make_device(state);
  Buffer w(1, parameters), g(1, parameters), m(1, parameters), v(1, parameters);
  for (float& value : v.elements) value = value * value;
  for (auto _ : state) ops::adamw_update(device, w.span(), g.span(), m.span(), v.span(), {});
  count_bytes(state, 7 * parameters);
}
void sum_of_squares(benchmark::State& state) {
  Host device = make_device(state);
  Buffer g(1, parameters);
  for (auto _ : state) benchmark::DoNotOptimize(ops::sum_of_squares(device, g.span()));
  count_bytes(state, parameters);
}
void all_finite(benchmark::State& state) {
  Host device = make_device(state);
  Buffer g(1, parameters);
  for (auto _ : state) benchmark::DoNotOptimize(ops::all_finite(device, g.span()));
  count_bytes(state, parameters);
}
void add(benchmark::State& state) {
  Host device = make_device(state);
  Buffer x(rows, width), y(rows, width);
  for (auto _ : state) ops::add(device, x.view(), y.view(), x.view());
  count_bytes(state, 3 * rows * width);
}
void parallel_for(benchmark::State& state) {
  Host device = make_device(state);
  for (auto _ : state) device.parallel_for(2, 1, [](Range range) { benchmark::DoNotOptimize(range); });
}

void threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"threads"})->Arg(1)->Arg(2)->UseRealTime();
}
void threads_and_dropout(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"threads", "dropout%"})->Args({1, 0})->Args({2, 0})->Args({1, 10})->UseRealTime();
}

BENCHMARK(linear_forward<width, hidden>)->Apply(threads);
BENCHMARK(linear_backward_input<width, hidden>)->Apply(threads);
BENCHMARK(linear_backward_weight<width, hidden>)->Apply(threads);
BENCHMARK(bias_backward)->Apply(threads);
BENCHMARK(attention_forward<64, 32>)->Apply(threads_and_dropout);
BENCHMARK(attention_backward<64, 32>)->Apply(threads_and_dropout);
BENCHMARK(attention_forward<256, 64>)->Apply(threads_and_dropout);
BENCHMARK(attention_backward<256, 64>)->Apply(threads_and_dropout);
BENCHMARK(attention_forward<2048, 64>)->Apply(threads_and_dropout);
BENCHMARK(attention_backward<2048, 64>)->Apply(threads_and_dropout);
BENCHMARK(layer_norm_forward)->Apply(threads);
BENCHMARK(layer_norm_backward_input)->Apply(threads);
BENCHMARK(layer_norm_backward_weight)->Apply(threads);
BENCHMARK(rms_norm_forward)->Apply(threads);
BENCHMARK(gelu_forward<ops::GeluKind::tanh_approximation>)->Apply(threads);
BENCHMARK(gelu_backward<ops::GeluKind::tanh_approximation>)->Apply(threads);
BENCHMARK(gelu_forward<ops::GeluKind::erf>)->Apply(threads);
BENCHMARK(gelu_backward<ops::GeluKind::erf>)->Apply(threads);
BENCHMARK(swiglu_forward)->Apply(threads);
BENCHMARK(swiglu_backward)->Apply(threads);
BENCHMARK(rotary_forward)->Apply(threads);
BENCHMARK(dropout_forward)->Apply(threads);
BENCHMARK(embedding_forward)->Apply(threads);
BENCHMARK(embedding_backward)->Apply(threads);
BENCHMARK(cross_entropy)->Apply(threads);
BENCHMARK(adamw_update)->Apply(threads);
BENCHMARK(sum_of_squares)->Apply(threads);
BENCHMARK(all_finite)->Apply(threads);
BENCHMARK(add)->Apply(threads);
BENCHMARK(parallel_for)->Apply(threads);

}  // namespace
