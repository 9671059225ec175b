// Promises of the lowered program: nothing left of an axis of size one, and the collectives that theory asks for.
#include <doctest/doctest.h>

#include <type_traits>

#include "dtrain/models/gpt.hpp"
#include "programs.hpp"

using namespace dtrain::test;
namespace dt = dtrain;
using dt::Index;
using dt::Serial;
using dt::Strategy;
using dt::comm::Operation;

namespace {

template <class S>
using Axes = dt::parallel::AxisCommunicators<S, dt::comm::Threads>;

// An axis of one rank has the communicator that does nothing.
template <class S>
constexpr bool tensor_is_self =
    std::is_same_v<std::remove_cvref_t<decltype(std::declval<Axes<S>&>().tensor())>, dt::comm::Self>;
template <class S>
constexpr bool pipeline_is_self =
    std::is_same_v<std::remove_cvref_t<decltype(std::declval<Axes<S>&>().pipeline())>, dt::comm::Self>;
static_assert(tensor_is_self<Serial> && pipeline_is_self<Serial>);
static_assert(tensor_is_self<Strategy<dt::TensorParallel<1>, dt::DataParallel<2>>>);
static_assert(!tensor_is_self<Strategy<dt::TensorParallel<2>>>);
static_assert(!pipeline_is_self<Strategy<dt::PipelineParallel<2>>>);

constexpr dt::models::GptShape shape{.vocab = 17, .context = 4, .width = 8, .heads = 2, .layers = 3, .hidden = 12};
using Model = dt::models::Gpt<shape>;

// One tensor rank means the very program of one rank.
static_assert(std::is_same_v<dt::parallel::LoweredModel<Model, dt::TensorParallel<1>, double>,
                             dt::parallel::LoweredModel<Model, dt::TensorParallel<1, dt::SequenceParallel>, double>>);
static_assert(Serial::Batch::size == 0);
static_assert(Strategy<dt::DataParallel<1>>::Batch::size == 0);

constexpr Index samples = 4;
constexpr Index rows = samples * shape.context;
constexpr Index activation = rows * shape.width * Index{sizeof(double)};
constexpr Index statistic = rows * Index{sizeof(double)};

constexpr auto feed = [](dt::Range range, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(range.begin) + 5 * i) % 17);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>((3 * i + 1) % 17);
};

struct Counts {
  dt::comm::Traffic::Count all_reduce, all_gather, reduce_scatter, send;
};

// What one communicator carried in one step.
template <class Program>
Counts count(Program& program, auto& communicator, int micro_batches) {
  const auto take = [&](Operation operation) { return communicator.traffic().of(operation); };
  const Counts before{take(Operation::all_reduce), take(Operation::all_gather), take(Operation::reduce_scatter),
                      take(Operation::send)};
  program.gradients({.samples = samples, .context = shape.context, .micro_batches = micro_batches}, 0, feed);
  const auto since = [&](Operation operation, dt::comm::Traffic::Count from) {
    const auto now = take(operation);
    return dt::comm::Traffic::Count{now.operations - from.operations, now.bytes - from.bytes};
  };
  return {since(Operation::all_reduce, before.all_reduce), since(Operation::all_gather, before.all_gather),
          since(Operation::reduce_scatter, before.reduce_scatter), since(Operation::send, before.send)};
}

}  // namespace

TEST_CASE("one rank asks nothing of the world after its start") {
  with_programs<Model, Serial>([](auto& program, auto& rank) {
    const auto before = rank.world().traffic().total();
    program.gradients({.samples = samples, .context = shape.context, .micro_batches = 2}, 0, feed);
    CHECK(program.gradient_norm() > 0.0);
    CHECK(rank.world().traffic().total() == before);
  });
}

// Two all-reduces forward and two backward per layer (Megatron-LM, section 3), one after the embedding and one before
// the head; the loss adds a maximum and two sums.
TEST_CASE("tensor parallelism moves 4 activations per layer and 2 for the ends") {
  with_programs<Model, Strategy<dt::TensorParallel<2>>>([](auto& program, auto& rank) {
    for (const int micro_batches : {1, 2}) {
      const Counts counts = count(program, rank.axes().tensor(), micro_batches);
      CHECK(counts.all_reduce.operations == micro_batches * (4 * shape.layers + 2 + 2));
      CHECK(counts.all_reduce.bytes == (4 * shape.layers + 2) * activation + 3 * statistic);
      CHECK(counts.all_gather.operations == 0);
      CHECK(counts.reduce_scatter.operations == 0);
    }
  });
}

// Each all-reduce becomes a reduce-scatter and an all-gather (Korthikanti et al., section 4.2.2): the same bytes.
TEST_CASE("sequence parallelism moves the same bytes in halves, and sums the parameters that rows share") {
  with_programs<Model, Strategy<dt::TensorParallel<2, dt::SequenceParallel>>>([](auto& program, auto& rank) {
    const Counts counts = count(program, rank.axes().tensor(), 1);
    // Per layer two of each forward and two of each backward; the embedding and the head have one of each between them
    // in each direction.
    CHECK(counts.all_gather.bytes == (4 * shape.layers + 2) * activation);
    CHECK(counts.reduce_scatter.bytes == (4 * shape.layers + 2) * activation);
    // Norms and biases behind sums: one all-reduce per layer, one for the positions, one for the last norm.
    CHECK(counts.all_reduce.operations == shape.layers + 2 + 2);
  });
}

TEST_CASE("data parallelism moves every gradient once, and one number more") {
  with_programs<Model, Strategy<dt::DataParallel<2>>>([](auto& program, auto& rank) {
    const Counts counts = count(program, rank.axes().template on<dt::parallel::axes::Data>(), 2);
    CHECK(counts.all_reduce.bytes == program.stage().plan().parameter_size() * Index{sizeof(double)} + 8);
    CHECK(counts.all_reduce.operations == 2);
  });
}

TEST_CASE("a pipeline sends each micro-batch's activation and its gradient once per boundary") {
  with_programs<Model, Strategy<dt::PipelineParallel<3>>>([](auto& program, auto& rank) {
    for (const int micro_batches : {1, 4}) {
      const Counts counts = count(program, rank.axes().pipeline(), micro_batches);
      const Index boundaries = rank.index() == 1 ? 2 : 1;
      CHECK(counts.send.operations == micro_batches * boundaries);
      CHECK(counts.send.bytes == boundaries * activation);
    }
  });
}
