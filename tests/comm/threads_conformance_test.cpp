#include <doctest/doctest.h>

#include "dtrain/comm/threads.hpp"
#include "dtrain/testing/communicator_conformance.hpp"
#include "run_ranks.hpp"

namespace dt = dtrain;

// fault H2
TEST_CASE("threads pass the conformance suite") {
  for (const int size : {1, 2, 3, 4, 8}) {
    CAPTURE(size);
    CHECK_NOTHROW(dt::tests::run_ranks(size, [](dt::comm::Threads& ranks) { dt::testing::check_communicator(ranks); }));
  }
}

TEST_CASE("a sub-group passes the conformance suite") {
  CHECK_NOTHROW(dt::tests::run_ranks(5, [](dt::comm::Threads& world) {
    auto group = world.split(world.rank() < 3 ? 0 : 1, -world.rank(), "part");
    dt::testing::check_communicator(*group, 1000);
    world.barrier().wait();
  }));
}
