// Runs a function on every rank of a world of threads.
#pragma once

#include <exception>
#include <thread>
#include <vector>

#include "dtrain/comm/threads.hpp"

namespace dtrain::tests {

/// What each rank threw, null where it returned. With `report`, a rank that throws fails the world, as a launcher
/// would.
template <class Act>
std::vector<std::exception_ptr> outcomes(comm::ThreadsWorld& world, Act act, bool report = true) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(world.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        comm::Threads communicator = world.communicator(rank);
        act(communicator);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        if (report) world.fail(rank, error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// Runs `act(communicator)` on `size` ranks; throws the first failure that is not a consequence of another.
template <class Act>
void run_ranks(int size, Act act, comm::ThreadsOptions options = {}) {
  comm::ThreadsWorld world(size, options);
  std::exception_ptr consequence;
  for (const std::exception_ptr& thrown : outcomes(world, act)) {
    if (!thrown) continue;
    try {
      std::rethrow_exception(thrown);
    } catch (const AbortedError&) {
      consequence = thrown;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

/// The sentence of an outcome of type `E`; anything else, also no outcome, gives a sentence that says so.
template <class E>
std::string sentence(const std::exception_ptr& thrown) {
  if (!thrown) return "(nothing thrown)";
  try {
    std::rethrow_exception(thrown);
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception) ") + error.what();
  }
}

}  // namespace dtrain::tests
