#include "dtrain/comm/agreement.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "dtrain/comm/self.hpp"
#include "run_ranks.hpp"

namespace dt = dtrain;
using dt::comm::NamedShape;

namespace {

/// The sentences of all ranks when rank 2 of 4 holds `odd` and the others hold `common`.
std::vector<std::string> verdicts(const std::vector<NamedShape>& common, const std::vector<NamedShape>& odd) {
  dt::comm::ThreadsWorld world(4);
  std::vector<std::string> sentences;
  const auto thrown = dt::tests::outcomes(
      world, [&](dt::comm::Threads& ranks) { dt::comm::verify_agreement(ranks, ranks.rank() == 2 ? odd : common); });
  for (const auto& each : thrown) sentences.push_back(dt::tests::sentence<dt::ConfigurationError>(each));
  return sentences;
}

}  // namespace

// fault D7
TEST_CASE("parameter lists that differ are an error on every rank") {
  const std::vector<NamedShape> common{{"embedding", "256x128"}, {"h.0.weight", "128x128"}, {"h.0.bias", "128"}};
  const auto expect = [&](const std::vector<NamedShape>& odd, const std::string& start) {
    for (const std::string& text : verdicts(common, odd)) {
      CAPTURE(text);
      CHECK(text.find(start) == 0);
    }
  };
  expect(
      {{"embedding", "256x128"}, {"h.0.weight", "128x64"}, {"h.0.bias", "128"}},
      "Parameter 1 differs: rank 2 holds 'h.0.weight' of shape 128x64, rank 0 holds 'h.0.weight' of shape 128x128, on "
      "communicator 'world'");
  expect({{"embedding", "256x128"}, {"h.0.bias", "128"}, {"h.0.weight", "128x128"}},
         "Parameter 1 differs: rank 2 holds 'h.0.bias' of shape 128, rank 0 holds 'h.0.weight'");
  expect({{"embedding", "256x128"}, {"h.0.weight", "128x128"}},
         "Parameter 2 differs: rank 2 holds none (it has 2 parameters), rank 0 holds 'h.0.bias' of shape 128");
  expect({}, "Parameter 0 differs: rank 2 holds none (it has 0 parameters), rank 0 holds 'embedding'");
}

TEST_CASE("equal lists pass, also empty ones and on one rank") {
  const std::vector<NamedShape> list{{"a", "1"}, {"b", "2x3"}};
  for (const std::string& text : verdicts(list, list)) CHECK(text == "(nothing thrown)");
  for (const std::string& text : verdicts({}, {})) CHECK(text == "(nothing thrown)");
  dt::comm::Self self;
  CHECK_NOTHROW(dt::comm::verify_agreement(self, list));
}
