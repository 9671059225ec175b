// Replaces operator new of this executable to count what the collectives allocate.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "dtrain/comm/threads.hpp"
#include "run_ranks.hpp"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* allocate(std::size_t size) {
  if (counting) ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace dt = dtrain;

TEST_CASE("nothing is allocated after the first round of calls") {
  for (const int size : {2, 4}) {
    dt::tests::run_ranks(size, [size](dt::comm::Threads& ranks) {
      const int next = (ranks.rank() + 1) % size;
      const int previous = (ranks.rank() + size - 1) % size;
      const auto shard = static_cast<std::size_t>(20'000);
      std::vector<float> data(shard * static_cast<std::size_t>(size), 1.0f);
      std::vector<float> other(data.size());
      std::vector<float> own(shard);
      const std::vector<dt::Index> counts(static_cast<std::size_t>(size), static_cast<dt::Index>(shard));
      const auto round = [&] {
        ranks.all_reduce(std::span(data)).wait();
        ranks.reduce_scatter(std::span(data), std::span(own), std::span(counts)).wait();
        ranks.all_gather(std::span(own), std::span(data), std::span(counts)).wait();
        ranks.broadcast(std::span(data), 1).wait();
        ranks.all_to_all(std::span(data), std::span(other), std::span(counts), std::span(counts)).wait();
        auto sent = ranks.send(std::span(data), next);
        auto received = ranks.receive(std::span(other), previous);
        dt::comm::wait_all(sent, received);
        ranks.barrier().wait();
      };
      round();
      if (ranks.rank() == 0) {
        allocations = 0;
        counting = true;
      }
      ranks.barrier().wait();
      for (int i = 0; i < 100; ++i) round();
      ranks.barrier().wait();
      if (ranks.rank() == 0) counting = false;
      ranks.barrier().wait();
    });
    CHECK(allocations == 0);
  }
}
