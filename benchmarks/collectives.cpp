// Collectives between threads, 1 KiB to 64 MiB of floats. Bytes per second are those of the call: the buffer of an
// all_reduce, the whole of an all_gather or reduce_scatter, the message. collectives_mpi measures the same under MPI.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/comm/threads.hpp"

namespace {

using dtrain::comm::Threads;
using dtrain::comm::ThreadsWorld;

/// Google Benchmark gives each rank a thread and all of them the same number of iterations.
template <class Act>
void measure(benchmark::State& state, Act act) {
  static ThreadsWorld worlds[] = {ThreadsWorld(1), ThreadsWorld(2), ThreadsWorld(4), ThreadsWorld(8)};
  for (ThreadsWorld& world : worlds) {
    if (world.size() != state.threads()) continue;
    Threads ranks = world.communicator(state.thread_index());
    const auto whole = static_cast<std::size_t>(state.range(0)) / sizeof(float);
    const std::size_t shard = whole / static_cast<std::size_t>(ranks.size());
    std::vector<float> buffer(whole, 0.0f);  // sums of zeros stay in range however often they are taken
    std::vector<float> part(shard, 0.0f);
    for (auto _ : state) act(ranks, std::span(buffer), std::span(part));
    ranks.barrier().wait();  // the buffers stay until all are done
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));  // rates are averaged over threads
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

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgsProduct({{1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26}})->UseRealTime();
}

BENCHMARK(all_reduce)->Apply(sizes)->Threads(2)->Threads(4)->Threads(8);
BENCHMARK(all_gather)->Apply(sizes)->Threads(2);
BENCHMARK(reduce_scatter)->Apply(sizes)->Threads(2);
BENCHMARK(send_receive)->Apply(sizes)->Threads(2);
BENCHMARK(barrier)->Arg(0)->UseRealTime()->Threads(2)->Threads(8);

}  // namespace

BENCHMARK_MAIN();
