// Replaces operator new of this executable to count what training steps allocate after the first ones.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* allocate(std::size_t size) {
  if (counting) ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* allocate_aligned(std::size_t size, std::size_t alignment) {
  if (counting) ++allocations;
  if (void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_aligned(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_aligned(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace dt = dtrain;

namespace {

using Model = dt::models::Gpt<dt::models::GptShape{
    .vocab = 17, .context = 6, .width = 8, .heads = 2, .layers = 2, .dropout = 0.1}>;

template <class S>
void check_steps(int micro_batches) {
  allocations = 0;
  dt::run_ranks<S>(
      [&](dt::Rank<S, dt::Host>& rank) {
        dt::Trainer<Model, S> trainer(rank);
        const dt::parallel::BatchShape shape{.samples = 8, .context = 6, .micro_batches = micro_batches};
        const auto step = [&] {
          trainer.step(shape, [](dt::Range samples, auto tokens, auto targets) {
            for (std::size_t i = 0; i < tokens.size(); ++i)
              tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(samples.begin) + 3 * i) % 17);
            for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i % 17);
          });
        };
        step();
        step();
        rank.world().barrier().wait();
        const dt::Index arenas = rank.device().allocations();
        if (rank.is_first()) counting = true;
        rank.world().barrier().wait();
        for (int i = 0; i < 3; ++i) step();
        rank.world().barrier().wait();
        if (rank.is_first()) counting = false;
        rank.world().barrier().wait();
        CHECK(rank.device().allocations() == arenas);
      },
      {.threads_per_rank = 1});
  CHECK(allocations == 0);
}

}  // namespace

TEST_CASE("steps three to five allocate nothing on one rank") { check_steps<dt::Serial>(2); }

TEST_CASE("steps three to five allocate nothing on eight ranks") {
  check_steps<dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2>, dt::TensorParallel<2>>>(4);
  check_steps<dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2>, dt::TensorParallel<2, dt::SequenceParallel>>>(
      2);
}

// fault I8
TEST_CASE(
    "steps three to five allocate nothing where parameters are gathered, blocks recomputed and chunks alternate") {
  using Interleaved = dt::PipelineParallel<2, dt::schedule::Interleaved1F1B, dt::Chunks<2>>;
  check_steps<dt::Strategy<dt::DataParallel<2, dt::Zero<3>>, Interleaved, dt::Recompute<dt::recompute::Full>>>(4);
}
