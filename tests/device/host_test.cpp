#include "dtrain/device/host.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace dtrain;

TEST_CASE("every item of a parallel loop is visited once, in parts that depend on counts alone") {
  for (const Index threads : {1, 2, 3, 5}) {
    Host device({.threads = threads});
    for (const Index n : {0, 1, 2, 7, 64, 1001})
      for (const Index grain : {1, 3, 100}) {
        std::vector<int> visits(static_cast<std::size_t>(n), 0);
        std::vector<Range> seen(static_cast<std::size_t>(threads));
        device.parallel_for(n, grain, [&](Range range, Index part) {
          seen[static_cast<std::size_t>(part)] = range;
          for (Index i = range.begin; i < range.end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        for (const int count : visits) CHECK(count == 1);
        const Index parts = device.parts(n, grain);
        for (Index part = 0; part < parts; ++part)
          CHECK(seen[static_cast<std::size_t>(part)] == even_share(n, parts, part));
        if (n > 0 && n < 2 * grain) CHECK(parts == 1);
      }
  }
}

TEST_CASE("part p always runs on thread p, part 0 on the caller") {
  Host device({.threads = 3});
  std::vector<std::thread::id> first(3);
  for (int repeat = 0; repeat < 50; ++repeat)
    device.parallel_for(3, 1, [&](Range, Index part) {
      auto& id = first[static_cast<std::size_t>(part)];
      if (repeat == 0) id = std::this_thread::get_id();
      if (id != std::this_thread::get_id()) throw std::runtime_error("part moved to another thread");
    });
  CHECK(first[0] == std::this_thread::get_id());
  CHECK(first[1] != first[2]);
}

TEST_CASE("many short jobs in a row lose none") {
  Host device({.threads = 2});
  std::atomic<Index> sum{0};
  for (Index job = 0; job < 20000; ++job) device.parallel_for(2, 1, [&](Range range) { sum += range.size(); });
  CHECK(sum == 40000);
}

TEST_CASE("the exception of the lowest failing part reaches the caller and the pool lives on") {
  Host device({.threads = 4});
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::string message;
    try {
      device.parallel_for(4, 1, [](Range, Index part) {
        if (part >= 2) throw std::runtime_error("part " + std::to_string(part));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK(message == "part 2");
    Index sum = 0;
    device.parallel_for(1, 1, [&](Range range) { sum += range.size(); });
    CHECK(sum == 1);
  }
}

TEST_CASE("a job that starts another job is refused") {
  Host device({.threads = 2});
  CHECK_THROWS_AS(device.parallel_for(2, 1, [&](Range) { device.parallel_for(2, 1, [](Range) {}); }), Error);
}

TEST_CASE("impossible thread counts are configuration errors") {
  CHECK_THROWS_AS(Host({.threads = 0}), ConfigurationError);
  CHECK_THROWS_AS(Host({.threads = -1}), ConfigurationError);
}

TEST_CASE("arenas are aligned and counted while they live") {
  Host device;
  CHECK(device.live_bytes() == 0);
  {
    HostArena small = device.allocate(100, Contents::zero);
    HostArena large = device.allocate((Index{3} << 20) + 1);
    CHECK(reinterpret_cast<std::uintptr_t>(small.data()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(large.data()) % 64 == 0);
    CHECK(small.bytes() == 100);
    CHECK(device.live_bytes() == 100 + (Index{3} << 20) + 1);
    CHECK(device.allocations() == 2);
    for (const std::byte byte : small.elements<std::byte>(0, 100)) CHECK(byte == std::byte{0});
    HostArena moved = std::move(small);
    CHECK(moved.bytes() == 100);
    CHECK(device.live_bytes() == 100 + (Index{3} << 20) + 1);
    large = device.allocate(8);
    CHECK(device.live_bytes() == 108);
  }
  CHECK(device.live_bytes() == 0);
  CHECK(device.allocations() == 3);
}

TEST_CASE("an arena may outlive its device") {
  HostArena arena;
  {
    Host device;
    arena = device.allocate(64);
  }
  CHECK(arena.bytes() == 64);
}

TEST_CASE("elements of an arena are checked against its size") {
  Host device;
  HostArena arena = device.allocate(64);
  CHECK(arena.elements<float>(0, 16).size() == 16);
  CHECK(arena.elements<double>(32, 4).size() == 4);
  CHECK_THROWS_AS((void)arena.elements<float>(0, 17), Error);
  CHECK_THROWS_AS((void)arena.elements<float>(4, 16), Error);
  CHECK_THROWS_AS((void)arena.elements<double>(4, 1), Error);
  CHECK_THROWS_AS((void)arena.elements<float>(-4, 1), Error);
  CHECK_THROWS_AS((void)device.allocate(-1), ConfigurationError);
}

// The sanitizers' own allocators end the process on a request of this size.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory that the system refuses is a configuration error and is not counted") {
  Host device;
  CHECK_THROWS_AS((void)device.allocate(Index{1} << 60), ConfigurationError);
  CHECK(device.live_bytes() == 0);
}
#endif

TEST_CASE("scratch grows only when more is asked for") {
  Host device({.threads = 2});
  const std::byte* const first = device.scratch(1, 1000);
  CHECK(device.allocations() == 1);
  CHECK(device.scratch(1, 10) == first);
  CHECK(device.scratch(1, 1000) == first);
  CHECK(device.allocations() == 1);
  CHECK(device.scratch_bytes() == 1000);
  CHECK(device.live_bytes() == 0);
  device.reserve_scratch(2, 2000);
  CHECK(device.allocations() == 3);
  CHECK(device.scratch_bytes() == 4000);
}

TEST_CASE("copy and fill reach every element, on one thread and on two") {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    std::vector<float> from(300001), to(300001);
    device.fill(std::span<float>(from), 2.5f);
    for (std::size_t i = 0; i < from.size(); i += 1000) CHECK(from[i] == 2.5f);
    CHECK(from.back() == 2.5f);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    device.copy(std::span<const float>(from), std::span<float>(to));
    CHECK(to == from);
    CHECK_THROWS_AS(device.copy(std::span<const float>(from), std::span<float>(to).first(3)), Error);
  }
}
