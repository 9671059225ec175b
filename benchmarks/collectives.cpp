// Collectives between threads, 1 KiB to 64 MiB of floats. Bytes per second are those of the call: the buffer of an
// all_reduce, the whole of an all_gather or reduce_scatter, the message. collectives_mpi measures the same under MPI.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "dtrain/comm/threads.hpp"

namespace {

using dtrain::comm::Threads;
using dtrain::comm::ThreadsWorld;

/// Rank 0 owns the clock; every other rank is a thread that makes as many calls.
template <class Act>
void measure(benchmark::State& state, Act act) {
  const auto whole = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  const auto count = static_cast<int>(state.range(1));
  ThreadsWorld world(count);
  const auto run = [&](int rank, auto&& loop) {
    Threads ranks = world.communicator(rank);
    std::vector<float> buffer(whole, 0.0f);  // sums of zeros stay in range however often they are taken
    std::vector<float> part(whole / static_cast<std::size_t>(count), 0.0f);
    ranks.barrier().wait();
    loop([&] { act(ranks, std::span(buffer), std::span(part)); });
    ranks.barrier().wait();  // the buffers stay until all are done
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < count; ++rank)
    others.emplace_back(run, rank, [&](auto&& call) {
      for (std::int64_t i = 0; i < state.max_iterations; ++i) call();
    });
  run(0, [&](auto&& call) {
    for (auto _ : state) call();
  });
  for (std::thread& other : others) other.join();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void all_reduce(benchmark::State& state) {
  measure(state, [](Threads& ranks, std::span<float> buffer, std::span<float>) { ranks.all_reduce(buffer).wait(); });
}
void all_gather(benchmark::State& state) {
  measure(state, [](Threads& ranks, std::span<float> buffer, std::span<float> part) {
    ranks.all_gather(part, buffer).wait();
  });
}
void reduce_scatter(benchmark::State& state) {
  measure(state, [](Threads& ranks, std::span<float> buffer, std::span<float> part) {
    ranks.reduce_scatter(buffer, part).wait();
  });
}
/// Rank 0 sends, rank 1 receives.
void send_receive(benchmark::State& state) {
  measure(state, [](Threads& ranks, std::span<float> buffer, std::span<float>) {
    (ranks.rank() == 0 ? ranks.send(buffer, 1) : ranks.receive(buffer, 0)).wait();
  });
}
void barrier(benchmark::State& state) {
  measure(state, [](Threads& ranks, std::span<float>, std::span<float>) { ranks.barrier().wait(); });
}

void between(benchmark::internal::Benchmark* benchmark, const std::vector<std::int64_t>& ranks) {
  benchmark->ArgNames({"bytes", "ranks"})
      ->ArgsProduct({{1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26}, ranks})
      ->UseRealTime();
}
void two(benchmark::internal::Benchmark* benchmark) { between(benchmark, {2}); }
void two_to_eight(benchmark::internal::Benchmark* benchmark) { between(benchmark, {2, 4, 8}); }

BENCHMARK(all_reduce)->Apply(two_to_eight);
BENCHMARK(all_gather)->Apply(two);
BENCHMARK(reduce_scatter)->Apply(two);
BENCHMARK(send_receive)->Apply(two);
BENCHMARK(barrier)->ArgNames({"bytes", "ranks"})->Args({0, 2})->Args({0, 8})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
