#include "dtrain/comm/threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "dtrain/core/random.hpp"
#include "run_ranks.hpp"

namespace dt = dtrain;
using dt::comm::Threads;
using dt::comm::ThreadsWorld;
using dt::tests::outcomes;
using dt::tests::run_ranks;
using dt::tests::sentence;
using std::chrono::milliseconds;

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("a world refuses sizes, deadlines and ranks that make no sense") {
  CHECK_THROWS_AS(ThreadsWorld(0), dt::ConfigurationError);
  CHECK_THROWS_AS(ThreadsWorld(-3), dt::ConfigurationError);
  CHECK_THROWS_AS(ThreadsWorld(2, {.deadline = milliseconds(0)}), dt::ConfigurationError);
  CHECK_THROWS_AS(ThreadsWorld(2, {.deadline = milliseconds(-1)}), dt::ConfigurationError);
  ThreadsWorld world(2);
  CHECK_THROWS_AS(static_cast<void>(world.communicator(2)), dt::ConfigurationError);
  CHECK_THROWS_AS(static_cast<void>(world.communicator(-1)), dt::ConfigurationError);
  CHECK(world.communicator(1).name() == "world");
}

// fault H1
TEST_CASE("a collective that one rank skips ends at the deadline and names operation and missing rank") {
  ThreadsWorld world(4, {.deadline = milliseconds(200)});
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = outcomes(
      world,
      [](Threads& ranks) {
        std::vector<float> data(1000, 1.0f);
        ranks.barrier().wait();
        if (ranks.rank() != 2) ranks.all_reduce(std::span(data)).wait();
      },
      /*report=*/false);
  CHECK(seconds_since(start) < 5);
  CHECK_FALSE(thrown[2]);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    const std::string text = sentence<dt::TimeoutError>(thrown[rank]);
    CAPTURE(text);
    CHECK(contains(text, "all_reduce #1 (sum, 1000 float) at threads_test.cpp:"));
    CHECK(contains(text, "waited 0.2 s"));
    CHECK(contains(text, "on communicator 'world' for rank 2 (whose last call was barrier #0"));
    CHECK_FALSE(contains(text, "for rank 1"));
    CHECK_FALSE(contains(text, "rank 3 (whose"));
  }
}

// fault H1
TEST_CASE("the sentence of a sub-group tells world ranks") {
  ThreadsWorld world(4, {.deadline = milliseconds(200)});
  const auto thrown = outcomes(world, [](Threads& ranks) {
    auto tensor = ranks.split(ranks.rank() / 2, 0, "tensor");
    if (ranks.rank() == 2) tensor->barrier().wait();
  });
  const std::string text = sentence<dt::TimeoutError>(thrown[2]);
  CAPTURE(text);
  CHECK(contains(text, "rank 0 (world rank 2) waited 0.2 s in barrier #0"));
  CHECK(contains(text, "on communicator 'tensor' for rank 1 (world rank 3) (which has called nothing on it yet)"));
}

TEST_CASE("a message without its other side ends at the deadline and names the peer") {
  for (const bool sends : {true, false}) {
    ThreadsWorld world(3, {.deadline = milliseconds(150)});
    const auto thrown = outcomes(world, [sends](Threads& ranks) {
      std::vector<double> data(7);
      if (ranks.rank() != 1) return;
      if (sends)
        ranks.send(std::span(data), 2).wait();
      else
        ranks.receive(std::span(data), 2).wait();
    });
    const std::string text = sentence<dt::TimeoutError>(thrown[1]);
    CAPTURE(text);
    CHECK(contains(text, sends ? "send #0 (7 double, to rank 2)" : "receive #0 (7 double, from rank 2)"));
    CHECK(contains(text, "on communicator 'world' for rank 2, which did not post the matching"));
  }
}

// fault H2
TEST_CASE("a mismatch reaches ranks that have not called yet, and those that called first") {
  ThreadsWorld world(3, {.deadline = milliseconds(5000)});
  std::atomic<bool> reported{false};
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = outcomes(
      world,
      [&](Threads& ranks) {
        std::vector<float> data(4);
        if (ranks.rank() == 2)
          while (!reported) std::this_thread::yield();
        try {
          ranks.all_reduce(std::span(data).first(ranks.rank() == 1 ? 3 : 4)).wait();
        } catch (...) {
          reported = true;
          throw;
        }
      },
      /*report=*/false);
  CHECK(seconds_since(start) < 4);
  const std::string text = sentence<dt::CommunicationError>(thrown[0]);
  CAPTURE(text);
  CHECK(contains(text, "The ranks of communicator 'world' disagree: rank 0 called all_reduce #0 (sum, 4 float)"));
  CHECK(contains(text, "but rank 1 called all_reduce #0 (sum, 3 float)"));
  CHECK(sentence<dt::CommunicationError>(thrown[1]) == text);
  CHECK(sentence<dt::CommunicationError>(thrown[2]) == text);
}

// fault H3
TEST_CASE("a rank that throws frees all others, in every group, with the first cause") {
  ThreadsWorld world(6);  // the deadline is a minute: nobody gets there
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = outcomes(world, [](Threads& ranks) {
    auto pair = ranks.split(ranks.rank() / 2, 0, "pair");
    std::vector<float> data(10);
    if (ranks.rank() == 5) {
      std::this_thread::sleep_for(milliseconds(50));
      throw std::runtime_error("loss is not a number");
    }
    if (ranks.rank() == 4) pair->all_reduce(std::span(data)).wait();
    if (ranks.rank() == 3) ranks.receive(std::span(data), 5).wait();
    if (ranks.rank() == 2) ranks.send(std::span(data), 5).wait();
    ranks.barrier().wait();
  });
  CHECK(seconds_since(start) < 10);
  CHECK(sentence<std::runtime_error>(thrown[5]) == "loss is not a number");
  for (std::size_t rank = 0; rank < 5; ++rank) {
    const std::string text = sentence<dt::AbortedError>(thrown[rank]);
    CAPTURE(text);
    CHECK(contains(text, "rank 5 failed: loss is not a number"));
  }
  CHECK(contains(sentence<dt::AbortedError>(thrown[4]), "rank 0 (world rank 4) was freed from all_reduce #0"));
  CHECK(contains(sentence<dt::AbortedError>(thrown[3]), "was freed from receive #0 (10 float, from rank 5)"));
  CHECK(*world.failure() == "rank 5 failed: loss is not a number");
}

TEST_CASE("abort frees waiters, later calls and groups made later; the first reason stays") {
  ThreadsWorld world(2);
  const auto thrown = outcomes(world, [](Threads& ranks) {
    if (ranks.rank() == 0) ranks.barrier().wait();
    ranks.abort("stop here");
    ranks.abort("not heard");
    ranks.barrier().wait();
  });
  CHECK(contains(sentence<dt::AbortedError>(thrown[0]), "rank 1 failed: stop here"));
  CHECK(contains(sentence<dt::AbortedError>(thrown[1]), "rank 1 failed: stop here"));
  Threads again = world.communicator(0);
  CHECK_THROWS_AS(static_cast<void>(again.split(0, 0, "late")), dt::AbortedError);
}

TEST_CASE("an exception that passes a posted operation frees the peers at once") {
  for (const bool message : {false, true}) {
    ThreadsWorld world(2);
    const auto start = std::chrono::steady_clock::now();
    const auto thrown = outcomes(
        world,
        [message](Threads& ranks) {
          std::vector<float> data(200'000);
          if (ranks.rank() == 0) {
            auto pending = message ? ranks.receive(std::span(data), 1) : ranks.all_reduce(std::span(data));
            throw std::runtime_error("unrelated");
          }
          std::this_thread::sleep_for(milliseconds(30));
          (message ? ranks.send(std::span(data), 0) : ranks.all_reduce(std::span(data))).wait();
        },
        /*report=*/false);
    CHECK(seconds_since(start) < 10);
    CHECK(sentence<std::runtime_error>(thrown[0]) == "unrelated");
    CHECK(contains(sentence<dt::AbortedError>(thrown[1]), "rank 0 gave up"));
  }
}

TEST_CASE("a buffer is not touched after its rank gave the operation up") {
  for (int run = 0; run < 60; ++run) {
    ThreadsWorld world(2);
    const auto thrown = outcomes(
        world,
        [run](Threads& ranks) {
          std::vector<float> data(400'000, 1.0f);
          const bool message = run % 2 == 0;
          auto pending = message
                             ? (ranks.rank() == 0 ? ranks.receive(std::span(data), 1) : ranks.send(std::span(data), 0))
                             : ranks.all_reduce(std::span(data));
          if (ranks.rank() == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(run * 10));
            throw std::runtime_error("in the middle");  // frees `data` while rank 1 moves it, if nothing prevents that
          }
          pending.wait();
        },
        /*report=*/false);
    CHECK(sentence<std::runtime_error>(thrown[0]) == "in the middle");
    if (thrown[1]) CHECK(contains(sentence<dt::AbortedError>(thrown[1]), "rank 0 gave up"));
  }
}

TEST_CASE("a handle that is dropped completes its operation") {
  run_ranks(3, [](Threads& ranks) {
    std::vector<std::int32_t> data(50'000, ranks.rank() + 1);
    {
      auto dropped = ranks.all_reduce(std::span(data));
    }
    CHECK(std::ranges::count(data, 6) == 50'000);
    auto moved = ranks.all_reduce(std::span(data));
    moved = ranks.barrier();  // assignment completes what the handle held
    CHECK(std::ranges::count(data, 18) == 50'000);
    moved.wait();
    moved.wait();
  });
}

TEST_CASE("the same bits on all ranks and in every run: the sum in rank order") {
  constexpr int size = 5;
  constexpr std::size_t count = 70'001;
  const auto value = [](int rank, std::size_t i) {
    return static_cast<float>(dt::RandomStream(7, static_cast<std::uint64_t>(rank)).normal(i));
  };
  std::vector<std::vector<float>> inputs(size);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < count; ++i) inputs[static_cast<std::size_t>(rank)].push_back(value(rank, i));
  std::vector<float> expected = inputs[0];
  for (std::size_t rank = 1; rank < size; ++rank)
    for (std::size_t i = 0; i < count; ++i) expected[i] += inputs[rank][i];
  for (int run = 0; run < 5; ++run)
    run_ranks(size, [&](Threads& ranks) {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * ((ranks.rank() + run) % size)));
      std::vector<float> data = inputs[static_cast<std::size_t>(ranks.rank())];
      ranks.all_reduce(std::span(data)).wait();
      CHECK(std::memcmp(data.data(), expected.data(), count * sizeof(float)) == 0);

      const std::vector<float>& input = inputs[static_cast<std::size_t>(ranks.rank())];
      std::vector<dt::Index> counts(size, 17'000);
      counts.back() = static_cast<dt::Index>(count) - 4 * 17'000;
      std::vector<float> shard(static_cast<std::size_t>(counts[static_cast<std::size_t>(ranks.rank())]));
      ranks.reduce_scatter(std::span(input), std::span(shard), std::span(counts)).wait();
      CHECK(std::memcmp(shard.data(), expected.data() + ranks.rank() * 17'000, shard.size() * sizeof(float)) == 0);
    });
}

// fault D8
TEST_CASE("bfloat16 sums over ranks are kept in float and rounded once") {
  run_ranks(8, [](Threads& ranks) {
    std::vector<dt::bfloat16> data(3, ranks.rank() == 0 ? 256.0f : 1.0f);
    ranks.all_reduce(std::span(data)).wait();
    CHECK(static_cast<float>(data[2]) == 264.0f);
  });
}

TEST_CASE("operations posted and never waited for by some ranks complete for the others") {
  run_ranks(2, [](Threads& ranks) {
    // Rank 1 only posts and then works; rank 0 does the moving.
    std::vector<float> data(500'000, 1.0f);
    std::vector<float> more(100, 1.0f);
    auto first = ranks.all_reduce(std::span(data));
    auto second = ranks.all_reduce(std::span(more));
    if (ranks.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    const auto start = std::chrono::steady_clock::now();
    second.wait();
    if (ranks.rank() == 0) CHECK(seconds_since(start) < 0.25);
    CHECK(more[99] == 2.0f);
    CHECK(data[499'999] == 2.0f);  // completed in order: the first before the second
    first.wait();
  });
}

TEST_CASE("communicators are independent: two axes waited for in opposite orders") {
  run_ranks(2, [](Threads& world) {
    auto a = world.split(0, 0, "a");
    auto b = world.split(0, 0, "b");
    std::vector<float> x(300'000, 1.0f);
    std::vector<float> y(300'000, 2.0f);
    std::vector<float> in(300'000);
    auto on_a = a->all_reduce(std::span(x));
    auto on_b = b->all_reduce(std::span(y));
    auto sent = world.send(std::span<const float>(x).first(0), 1 - world.rank());
    auto received = world.receive(std::span(in).first(0), 1 - world.rank());
    if (world.rank() == 0)
      dt::comm::wait_all(on_a, sent, on_b, received);
    else
      dt::comm::wait_all(received, on_b, on_a, sent);
    CHECK(x[299'999] == 2.0f);
    CHECK(y[0] == 4.0f);
  });
}

TEST_CASE("more than 64 collectives may be posted; more than 64 messages are refused with a sentence") {
  run_ranks(3, [](Threads& ranks) {
    std::vector<std::int64_t> values(1000);
    std::vector<Threads::Handle> handles;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int64_t>(i) + ranks.rank();
      handles.push_back(ranks.all_reduce(std::span(&values[i], 1)));
    }
    for (auto& handle : handles) handle.wait();
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == 3 * static_cast<std::int64_t>(i) + 3);
  });
  ThreadsWorld world(1);
  Threads self = world.communicator(0);
  std::vector<float> data(1);
  std::vector<Threads::Handle> handles;
  std::string text;
  try {
    for (int i = 0; i < 65; ++i) handles.push_back(self.send(std::span(data), 0));
  } catch (const dt::CommunicationError& error) {
    text = error.what();
  }
  CHECK(handles.size() == 64);
  CHECK(contains(text, "rank 0 has 64 unfinished messages on communicator 'world'"));
  CHECK_THROWS_AS(handles[0].wait(), dt::CommunicationError);
}

TEST_CASE("a rank may send to itself") {
  run_ranks(2, [](Threads& ranks) {
    const std::vector<float> out(30'000, static_cast<float>(ranks.rank()));
    std::vector<float> in(out.size(), -1.0f);
    auto sent = ranks.send(std::span(out), ranks.rank());
    auto received = ranks.receive(std::span(in), ranks.rank());
    sent.wait();
    CHECK(in == out);
    received.wait();
  });
}

TEST_CASE("a send does not complete before its receive is posted") {
  run_ranks(2, [](Threads& ranks) {
    static std::atomic<bool> posted;
    posted = false;
    ranks.barrier().wait();
    std::vector<float> data(5, 3.0f);
    if (ranks.rank() == 0) {
      ranks.send(std::span(data), 1).wait();
      CHECK(posted.load());
    } else {
      std::this_thread::sleep_for(milliseconds(50));
      posted = true;
      ranks.receive(std::span(data), 0).wait();
    }
  });
}

TEST_CASE("calls that cannot be carried out stop the group with a sentence") {
  const auto misuse = [](auto act) {
    ThreadsWorld world(2);
    const auto thrown = outcomes(world, act, /*report=*/false);
    const std::string text = sentence<dt::CommunicationError>(thrown[0]);
    CHECK(sentence<dt::CommunicationError>(thrown[1]) == text);
    return text;
  };
  const auto only_first = [](Threads& ranks, auto act) { ranks.rank() == 0 ? act().wait() : ranks.barrier().wait(); };
  std::vector<float> ten(10);
  std::vector<float> four(4);
  CHECK(contains(misuse([&](Threads& ranks) {
                   only_first(ranks, [&] { return ranks.all_gather(std::span<const float>(four), std::span(ten)); });
                 }),
                 "all_gather #0 (10 float)"));
  CHECK(contains(misuse([&](Threads& ranks) {
                   only_first(ranks, [&] {
                     return ranks.all_gather(std::span<const float>(four), std::span(ten),
                                             std::vector<dt::Index>{4, 5});
                   });
                 }),
                 "was given shards that add up to 9 elements for a whole of 10."));
  CHECK(contains(misuse([&](Threads& ranks) {
                   only_first(ranks, [&] {
                     return ranks.reduce_scatter(std::span<const float>(ten), std::span(four),
                                                 std::vector<dt::Index>{11, -1});
                   });
                 }),
                 "the negative count -1 for rank 1"));
  CHECK(contains(misuse([&](Threads& ranks) {
                   only_first(ranks, [&] {
                     return ranks.all_gather(std::span<const float>(ten).subspan(1, 5), std::span(ten));
                   });
                 }),
                 "overlap, but not at the rank's own shard"));
  CHECK(contains(misuse([&](Threads& ranks) { only_first(ranks, [&] { return ranks.send(std::span(ten), 2); }); }),
                 "called by rank 0 on communicator 'world', names rank 2, but there are only ranks 0 to 1."));
}

TEST_CASE("split names must agree") {
  ThreadsWorld world(3);
  const auto thrown = outcomes(
      world, [](Threads& ranks) { static_cast<void>(ranks.split(0, 0, ranks.rank() == 2 ? "data" : "tensor")); },
      /*report=*/false);
  for (const auto& each : thrown)
    CHECK(contains(sentence<dt::CommunicationError>(each), "for 'tensor' by rank 0 and for 'data' by rank 2"));
}

TEST_CASE("traffic counts operations and bytes by kind") {
  run_ranks(4, [](Threads& ranks) {
    using dt::comm::Operation;
    std::vector<float> data(100);
    std::vector<float> all(400);
    std::vector<dt::bfloat16> half(8);
    ranks.all_reduce(std::span(data)).wait();
    ranks.all_reduce(std::span(half)).wait();
    ranks.all_gather(std::span(data), std::span(all)).wait();
    ranks.reduce_scatter(std::span(all), std::span(data)).wait();
    ranks.barrier().wait();
    const auto& traffic = ranks.traffic();
    CHECK(traffic.of(Operation::all_reduce) == dt::comm::Traffic::Count{2, 416});
    CHECK(traffic.of(Operation::all_gather) == dt::comm::Traffic::Count{1, 1600});
    CHECK(traffic.of(Operation::reduce_scatter) == dt::comm::Traffic::Count{1, 1600});
    CHECK(traffic.of(Operation::barrier) == dt::comm::Traffic::Count{1, 0});
    CHECK(traffic.of(Operation::send) == dt::comm::Traffic::Count{0, 0});
    CHECK(traffic.total() == dt::comm::Traffic::Count{5, 3616});
  });
}

TEST_CASE("random delays and orders never change a result") {
  constexpr int size = 4;
  run_ranks(size, [](Threads& ranks) {
    auto pair = ranks.split(ranks.rank() / 2, 0, "pair");
    std::mt19937 random(static_cast<unsigned>(ranks.rank()));  // delays only
    const auto dawdle = [&] {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    };
    const int next = (ranks.rank() + 1) % size;
    const int previous = (ranks.rank() + size - 1) % size;
    for (int step = 0; step < 200; ++step) {
      const auto count = static_cast<std::size_t>(step % 7 == 0 ? 40'000 : step % 5 * 10);
      std::vector<std::int32_t> a(count, ranks.rank() + step);
      std::vector<std::int32_t> b(count, ranks.rank());
      std::vector<std::int32_t> out(count, ranks.rank() * 1000 + step);
      std::vector<std::int32_t> in(count);
      auto sum = ranks.all_reduce(std::span(a));
      dawdle();
      auto received = ranks.receive(std::span(in), previous);
      auto pair_sum = pair->all_reduce(std::span(b));
      dawdle();
      auto sent = ranks.send(std::span(out), next);
      (random() % 2 == 0 ? sum : pair_sum).wait();
      dawdle();
      dt::comm::wait_all(sent, sum, received, pair_sum);
      const auto is = [count](const auto& values, std::int32_t value) {
        return std::ranges::count(values, value) == static_cast<std::ptrdiff_t>(count);
      };
      REQUIRE(is(a, 6 + size * step));
      REQUIRE(is(b, ranks.rank() / 2 == 0 ? 1 : 5));
      REQUIRE(is(in, previous * 1000 + step));
    }
  });
}
