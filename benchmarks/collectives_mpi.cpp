// The measurements of collectives.cpp with MPI processes as ranks: mpirun -n 2 bench_collectives_mpi.
#include <benchmark/benchmark.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

struct Ranks {
  int rank = 0;
  int size = 1;
  Ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
};

template <class Act>
void measure(benchmark::State& state, Act act) {
  const Ranks ranks;
  const auto whole = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  std::vector<float> buffer(whole, 0.0f);
  std::vector<float> part(whole / static_cast<std::size_t>(ranks.size), 0.0f);
  MPI_Barrier(MPI_COMM_WORLD);
  for (auto _ : state) act(ranks, buffer, part);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void all_reduce(benchmark::State& state) {
  measure(state, [](const Ranks&, std::vector<float>& buffer, std::vector<float>&) {
    MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
}
void all_gather(benchmark::State& state) {
  measure(state, [](const Ranks&, std::vector<float>& buffer, std::vector<float>& part) {
    MPI_Allgather(part.data(), static_cast<int>(part.size()), MPI_FLOAT, buffer.data(), static_cast<int>(part.size()),
                  MPI_FLOAT, MPI_COMM_WORLD);
  });
}
void reduce_scatter(benchmark::State& state) {
  measure(state, [](const Ranks&, std::vector<float>& buffer, std::vector<float>& part) {
    MPI_Reduce_scatter_block(buffer.data(), part.data(), static_cast<int>(part.size()), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  });
}
/// Rank 0 sends, rank 1 receives; synchronous, since a send of dtrain completes with its receive.
void send_receive(benchmark::State& state) {
  measure(state, [](const Ranks& ranks, std::vector<float>& buffer, std::vector<float>&) {
    if (ranks.rank == 0 && ranks.size > 1)
      MPI_Ssend(buffer.data(), static_cast<int>(buffer.size()), MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    if (ranks.rank == 1)
      MPI_Recv(buffer.data(), static_cast<int>(buffer.size()), MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  });
}
void barrier(benchmark::State& state) {
  measure(state, [](const Ranks&, std::vector<float>&, std::vector<float>&) { MPI_Barrier(MPI_COMM_WORLD); });
}

/// Keeps all ranks but the first silent.
class Silent : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

void add(const char* name, void (*function)(benchmark::State&), std::int64_t bytes) {
  // Every process must take the same number of iterations, so it cannot be left to the clock.
  const std::int64_t iterations =
      std::clamp<std::int64_t>((std::int64_t{1} << 30) / std::max<std::int64_t>(bytes, 1), 16, 20'000);
  benchmark::RegisterBenchmark(name, function)->Arg(bytes)->UseRealTime()->Iterations(iterations);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  benchmark::Initialize(&argc, argv);
  for (const auto& [name, function] : {std::pair{"all_reduce", &all_reduce},
                                       {"all_gather", &all_gather},
                                       {"reduce_scatter", &reduce_scatter},
                                       {"send_receive", &send_receive}})
    for (std::int64_t bytes = 1 << 10; bytes <= 1 << 26; bytes *= 16) add(name, function, bytes);
  add("barrier", &barrier, 0);
  if (Ranks().rank == 0) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    Silent silent;
    benchmark::RunSpecifiedBenchmarks(&silent);
  }
  benchmark::Shutdown();
  MPI_Finalize();
}
