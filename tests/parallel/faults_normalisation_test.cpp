// Faults of loss and gradient normalisation, with numbers that can be followed by hand.
#include <doctest/doctest.h>

#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
using dt::DataParallel;
using dt::Index;
using dt::Serial;
using dt::Strategy;

namespace {

const std::vector<double> identity{1, 0, 0, 1};
const std::vector<double> zeros{0, 0, 0, 0};

doctest::Approx close(double value) { return doctest::Approx(value).epsilon(1e-14); }

// The loss of a batch on every rank of S, where logits are features.
template <class S>
void check_loss(const Batch& batch, int micro_batches, double loss, Index tokens) {
  with_programs<Logits<2>, S>([&](auto& program, auto&) {
    set(program, "logits.weight", identity);
    const auto result = run_batch(program, batch, micro_batches);
    CHECK(result.loss() == close(loss));
    CHECK(result.tokens == tokens);
    const auto evaluated =
        program.evaluate(batch.shape(micro_batches),
                         [&](dt::Range samples, auto inputs, auto targets) { batch.fill(samples, inputs, targets); });
    CHECK(evaluated.loss() == close(loss));
  });
}

// The gradient of weight (0, 0) on every rank of S, where all weights are 0; exact.
template <class S>
void check_gradient(const Batch& batch, int micro_batches, double expected) {
  with_programs<Logits<2>, S>([&](auto& program, auto&) {
    set(program, "logits.weight", zeros);
    run_batch(program, batch, micro_batches);
    CHECK(gradient(program, "logits.weight")[0] == expected);
  });
}

}  // namespace

// fault A1
TEST_CASE("the mean is over tokens, not over the means of micro-batches") {
  Batch batch;
  for (int i = 0; i < 4; ++i) batch.add_loss(1.0);
  batch.add_loss(4.0);
  for (int i = 0; i < 3; ++i) batch.add_ignored();
  check_loss<Serial>(batch, 2, 1.6, 5);
  Batch gradients;
  for (int i = 0; i < 4; ++i) gradients.add_gradient(1.0);
  gradients.add_gradient(4.0);
  for (int i = 0; i < 3; ++i) gradients.add_ignored();
  check_gradient<Serial>(gradients, 2, 1.6);
}

// fault A2
TEST_CASE("tokens are counted over micro-batches and over data ranks") {
  Batch batch;
  for (int i = 0; i < 3; ++i) batch.add_loss(2.0);
  batch.add_loss(2.0);
  for (int i = 0; i < 2; ++i) batch.add_ignored();
  for (int i = 0; i < 2; ++i) batch.add_loss(5.0);
  batch.add_ignored();
  for (int i = 0; i < 3; ++i) batch.add_ignored();
  check_loss<Strategy<DataParallel<2>>>(batch, 2, 3.0, 6);
}

// fault A5
TEST_CASE("gradients that are divided by the global count are summed over data ranks") {
  dt::run_ranks<Strategy<DataParallel<2>>>([](auto& rank) {
    std::vector<double> g{rank.index() == 0 ? 1.0 : 2.0};
    DataParallel<2>::reduce(rank.world(), std::span(g)).wait();
    CHECK(g[0] == 3.0);
  });
  Batch batch;
  batch.add_gradient(2.0);
  batch.add_gradient(4.0);
  check_gradient<Strategy<DataParallel<2>>>(batch, 1, 3.0);
}

// fault A6
TEST_CASE("data ranks are summed once all micro-batches are in") {
  Batch batch;
  for (const double g : {1.0, 3.0, 2.0, 5.0}) batch.add_gradient(g);
  check_gradient<Strategy<DataParallel<2>>>(batch, 2, 5.5 * 2 / 4);
}

// fault A8
TEST_CASE("however often gradients are accumulated, they are reduced once") {
  Batch batch;
  for (const double g : {1.0, 3.0, 2.0, 5.0, 8.0, 4.0, 6.0, 3.0}) batch.add_gradient(g);
  for (const int accumulation : {1, 2, 4}) check_gradient<Strategy<DataParallel<2>>>(batch, accumulation, 4.0);
}

// fault A9
TEST_CASE("every micro-batch adds its gradient") {
  Batch batch;
  for (int i = 0; i < 4; ++i) batch.add_gradient(1.0);
  for (const int micro_batches : {1, 2, 4}) {
    check_gradient<Serial>(batch, micro_batches, 4.0 / 4.0);
  }
}

// fault A10
TEST_CASE("uneven counts of data ranks weigh by token") {
  Batch batch;
  for (const double g : {2.0, 3.0, 5.0}) batch.add_gradient(g);
  batch.add_gradient(6.0);
  batch.add_ignored();
  batch.add_ignored();
  check_gradient<Strategy<DataParallel<2>>>(batch, 1, 4.0);
}

// fault I2, fault E8
TEST_CASE("every rank tells the global loss") {
  Batch batch;
  for (int i = 0; i < 3; ++i) batch.add_loss(2.0);
  batch.add_loss(5.0);
  batch.add_ignored();
  batch.add_ignored();
  check_loss<Strategy<DataParallel<2>>>(batch, 1, 2.75, 4);
}

TEST_CASE("a batch in which nothing is counted has a loss and gradients of 0") {
  Batch batch;
  for (int i = 0; i < 4; ++i) batch.add_ignored();
  check_loss<Strategy<DataParallel<2>>>(batch, 2, 0.0, 0);
  check_gradient<Strategy<DataParallel<2>>>(batch, 2, 0.0);
}
