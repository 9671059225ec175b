#include "dtrain/comm/traffic.hpp"

#include <doctest/doctest.h>

namespace dt = dtrain;
using dt::comm::Operation;

TEST_CASE("bytes on a ring") {
  CHECK(dt::comm::ring_bytes(Operation::all_reduce, 1000, 4) == 1500.0);
  CHECK(dt::comm::ring_bytes(Operation::reduce_scatter, 1000, 4) == 750.0);
  CHECK(dt::comm::ring_bytes(Operation::all_gather, 1000, 2) == 500.0);
  CHECK(dt::comm::ring_bytes(Operation::all_reduce, 1000, 1) == 0.0);
  CHECK(dt::comm::ring_bytes(Operation::send, 1000, 2) == 1000.0);
  CHECK(dt::comm::ring_bytes(Operation::barrier, 0, 8) == 0.0);
}

TEST_CASE("a call is described by kind, number, reduction, count, type and place") {
  dt::comm::CallDescription call;
  call.operation = Operation::all_reduce;
  call.reduction = dt::comm::Reduction::maximum;
  call.sequence = 7;
  call.type = dt::comm::element_type<std::uint16_t>();
  call.count = 12;
  call.where = std::source_location::current();
  CHECK(dt::comm::describe(call).find("all_reduce #7 (maximum, 12 uint16) at traffic_test.cpp:") == 0);
  CHECK(call.bytes() == 24);
  struct Pair {
    int a, b, c;
  };
  call.operation = Operation::broadcast;
  call.type = dt::comm::element_type<Pair>();
  call.peer = 3;
  CHECK(dt::comm::describe(call).find("broadcast #7 (12 bytes[12], root 3) at") == 0);
}
