#include "dtrain/comm/self.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "dtrain/testing/communicator_conformance.hpp"

namespace dt = dtrain;

TEST_CASE("self passes the conformance suite") {
  dt::comm::Self self;
  CHECK_NOTHROW(dt::testing::check_communicator(self));
}

TEST_CASE("self is nothing at run time") {
  static_assert(std::is_empty_v<dt::comm::Self>);
  static_assert(std::is_empty_v<dt::comm::Self::Handle>);
  static_assert(dt::comm::Self::size() == 1 && dt::comm::Self::rank() == 0);
}

TEST_CASE("self refuses wrong calls with a sentence") {
  dt::comm::Self self;
  std::array<float, 3> data{};
  std::array<float, 2> shorter{};
  const std::array<dt::Index, 1> counts{2};
  CHECK_THROWS_AS(self.broadcast(std::span(data), 1), dt::CommunicationError);
  CHECK_THROWS_AS(self.all_gather(std::span(data), std::span(shorter)), dt::CommunicationError);
  CHECK_THROWS_AS(self.reduce_scatter(std::span(data), std::span(data), std::span(counts)), dt::CommunicationError);
  CHECK_THROWS_AS(self.all_gather(std::span(data).first(2), std::span(data).last(2)), dt::CommunicationError);
  CHECK_THROWS_AS(self.receive(std::span(data), 0), dt::CommunicationError);
  std::string text;
  try {
    self.send(std::span(data), 3);
  } catch (const dt::CommunicationError& error) {
    text = error.what();
  }
  CHECK(text.find("send at self_test.cpp:") == 0);
  CHECK(text.find("names rank 3 as its peer, but a group of one has no peers") != std::string::npos);
}
