#include "dtrain/parallel/explain.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../comm/run_ranks.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/models/gpt.hpp"
#include "dtrain/models/llama.hpp"
#include "dtrain/models/mlp.hpp"
#include "dtrain/parallel/program.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"

using namespace dtrain;
using namespace dtrain::parallel;

namespace {

using Gpt = models::Gpt<models::GptShape{.vocab = 17, .context = 8, .width = 16, .heads = 4, .layers = 3}>;
using Llama = models::Llama<models::LlamaShape{
    .vocab = 17, .context = 8, .width = 16, .heads = 4, .layers = 3, .key_value_heads = 2}>;
using Mlp = models::Mlp<models::MlpShape{.inputs = 8, .hidden = 16, .outputs = 5, .layers = 2}>;

// Fills a range of samples with anything that is valid.
struct Feed {
  Index context;
  template <class Inputs>
  void operator()(Range samples, Inputs inputs, std::span<std::int32_t> targets) const {
    const auto first = static_cast<std::size_t>(samples.begin * context);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = static_cast<typename Inputs::element_type>(static_cast<std::int16_t>((first + i) * 7 % 5));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>((first + i) * 3 % 5);
  }
};

comm::Traffic::Count difference(const comm::Traffic& after, const comm::Traffic& before, comm::Operation operation) {
  return {after.of(operation).operations - before.of(operation).operations,
          after.of(operation).bytes - before.of(operation).bytes};
}

// What the explanation says of one axis and one operation.
comm::Traffic::Count explained(const StageReport& stage, std::string_view axis, comm::Operation operation) {
  std::string name(comm::operation_name(operation));
  for (char& character : name)
    if (character == '_') character = '-';
  comm::Traffic::Count count;
  for (const Communication& call : stage.communications)
    if (call.axis == axis && call.collective == name && !call.purpose.starts_with("tied parameter"))
      count = {count.operations + call.calls, count.bytes + call.bytes};
  return count;
}

// Runs one step on threads; on every rank the explained bytes are the allocated ones, and the explained calls are those
// of the communicators.
template <class Model, class S, class T>
void compare(int ranks, const BatchShape& shape) {
  const Explanation program = explanation_of<Model, S, T>(shape, {.ranks = ranks});
  REQUIRE(program.stages.size() == static_cast<std::size_t>(S::Pipeline::degree));
  std::mutex mutex;
  tests::run_ranks(ranks, [&](comm::Threads& world) {
    Host device;
    AxisCommunicators<S, comm::Threads> axes(world);
    Program<Model, S, T, Host, comm::Threads> run(device, axes, 7);
    const auto traffic_of = [](auto& communicator) {
      if constexpr (requires { communicator.traffic(); }) return communicator.traffic();
      return comm::Traffic{};
    };
    std::array<comm::Traffic, 3> before{traffic_of(axes.tensor()), traffic_of(axes.template on<axes::Data>()),
                                        traffic_of(axes.pipeline())};
    run.gradients(shape, 0, Feed{shape.context});
    run.publish_parameters();
    const std::array<comm::Traffic, 3> after{traffic_of(axes.tensor()), traffic_of(axes.template on<axes::Data>()),
                                             traffic_of(axes.pipeline())};
    const std::lock_guard lock(mutex);
    const auto stage_index = static_cast<std::size_t>(run.stage_index());
    const StageReport& stage = program.stages[stage_index];
    CAPTURE(program.strategy);
    CAPTURE(stage_index);
    for (std::size_t c = 0; c < run.chunks().size(); ++c)
      CHECK(stage.units.at(c) == run.chunks()[c]->stage().plan().units());
    CHECK(stage.memory == run.memory());
    CHECK(stage.memory == run.allocated());
    for (std::size_t c = 0; c < stage.chunks.size(); ++c)
      CHECK(stage.chunks[c].in_flight == run.training_tables()[stage_index].slots.at(c));
    bool counts_targets = false;
    for (auto& chunk : run.chunks()) counts_targets = counts_targets || chunk->stage().last();
    const std::array<std::string_view, 3> names{"tensor", "data", "pipeline"};
    for (std::size_t a = 0; a < names.size(); ++a)
      for (const comm::Operation operation :
           {comm::Operation::all_reduce, comm::Operation::reduce_scatter, comm::Operation::all_gather,
            comm::Operation::send, comm::Operation::receive}) {
        comm::Traffic::Count expected = explained(stage, names[a], operation);
        // The count of targets, which the explanation counts among "a few numbers".
        if (names[a] == "data" && operation == comm::Operation::all_reduce && program.shares > 1 && counts_targets)
          expected = {expected.operations + 1, expected.bytes + 8};
        CAPTURE(names[a]);
        CAPTURE(comm::operation_name(operation));
        const comm::Traffic::Count counted = difference(after[a], before[a], operation);
        CHECK(counted.operations == expected.operations);
        // Stages send shards of unequal size where rows do not divide; rank 0's is explained.
        CHECK(counted.bytes == expected.bytes);
      }
  });
}

const Communication* find(const StageReport& stage, std::string_view purpose) {
  for (const Communication& call : stage.communications)
    if (call.purpose == purpose) return &call;
  return nullptr;
}

}  // namespace

TEST_CASE("what is explained is what a run allocates and exchanges") {
  compare<Gpt, Serial, float>(1, {.samples = 4, .context = 8, .micro_batches = 2});
  compare<Gpt, Strategy<DataParallel<2, BucketBytes<4096>>>, float>(2, {.samples = 8, .context = 8});
  compare<Gpt, Strategy<TensorParallel<2>>, double>(2, {.samples = 2, .context = 8, .micro_batches = 2});
  compare<Llama, Strategy<TensorParallel<4, SequenceParallel>, ChunkedLoss<9>>, float>(4, {.samples = 3, .context = 8});
  compare<Llama, Strategy<PipelineParallel<3, schedule::GPipe>>, double>(
      3, {.samples = 4, .context = 4, .micro_batches = 4});
  compare<Gpt, Strategy<DataParallel<dynamic>, PipelineParallel<2>, TensorParallel<2, SequenceParallel>>, float>(
      8, {.samples = 12, .context = 8, .micro_batches = 3});
  compare<Gpt, Strategy<DataParallel<2, Zero<3>>, Recompute<recompute::Full>>, float>(
      2, {.samples = 4, .context = 7, .micro_batches = 2});
  compare<Gpt, Strategy<DataParallel<2, Zero<2>>, PipelineParallel<2, schedule::Interleaved1F1B, Chunks<2>>>, float>(
      4, {.samples = 8, .context = 8, .micro_batches = 2});
  compare<Mlp, Strategy<DataParallel<2>, TensorParallel<2>>, float>(4,
                                                                    {.samples = 8, .context = 1, .micro_batches = 2});
  // Gradients that are reduced in another type than their own.
  using Half = dtrain::bfloat16;
  compare<Mlp, Strategy<DataParallel<2, Reduce<Half>>>, float>(2, {.samples = 4, .context = 1});
  compare<Mlp, Strategy<DataParallel<4, Zero<2, ShardWithin<2>>, Reduce<float>>>, Precision<Half, Half>>(
      4, {.samples = 8, .context = 1, .micro_batches = 2});
}

TEST_CASE("parameters are counted whole, once") {
  using One = models::Gpt<models::GptShape{.vocab = 17, .context = 8, .width = 16, .heads = 4, .layers = 2}>;
  // Embeddings, two blocks of twelve squared widths and thirteen widths, the final norm; the head is tied.
  const Index expected = 17 * 16 + 8 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16;
  const BatchShape shape{.samples = 4, .context = 8};
  CHECK(explanation_of<One, Serial>(shape).whole_parameters == expected);
  const auto cut = explanation_of<One, Strategy<PipelineParallel<2>, TensorParallel<2>>>(shape);
  CHECK(cut.whole_parameters == expected);
  CHECK(cut.rule_of_thumb_flops() == 6.0 * double(expected) * 32);
  CHECK(cut.flops() == explanation_of<One, Serial>(shape).flops());
  CHECK(cut.stages[0].optimizer == 2 * cut.stages[0].memory.parameters);
}

TEST_CASE("redistributions carry their collectives and bytes") {
  const auto program = explanation_of<Gpt, Strategy<TensorParallel<2>>>({.samples = 4, .context = 8});
  const UnitReport& block = program.units[2];
  REQUIRE(block.name == "blocks");
  REQUIRE(block.count == 3);
  const Index bytes = 32 * 16 * 4;
  int found = 0;
  for (const NodeReport& node : block.nodes) {
    if (node.path == "attention.qkv") {
      CHECK(node.type == "Linear");
      CHECK(node.before == TransferPair{{}, {"all-reduce", bytes}});
      CHECK(node.parameters == (16 * 48 + 48) / 2);
      CHECK(node.whole_parameters == 16 * 48 + 48);
      ++found;
    }
    if (node.path == "attention.output") {
      CHECK(node.after == TransferPair{{"all-reduce", bytes}, {}});
      // The matrix is cut, the bias behind the sum is not.
      CHECK(node.parameters == 16 * 16 / 2 + 16);
      ++found;
    }
  }
  CHECK(found == 2);
  const UnitReport& head = program.units[4];
  CHECK(head.nodes.back().tied);
  CHECK(head.whole_parameters == 0);
}

TEST_CASE("a tied parameter is reduced between its stages") {
  const auto program = explanation_of<Gpt, Strategy<PipelineParallel<3>>>({.samples = 4, .context = 8});
  const Communication* first = find(program.stages[0], "tied parameter, with stage 2");
  const Communication* last = find(program.stages[2], "tied parameter, with stage 0");
  REQUIRE(first != nullptr);
  REQUIRE(last != nullptr);
  CHECK(first->bytes == 17 * 16 * 4);
  CHECK(last->bytes == 17 * 16 * 4);
  for (const Communication& call : program.stages[1].communications) CHECK(call.collective != "all-reduce");
}

TEST_CASE("copied heads are reduced between the ranks that hold them") {
  const auto program = explanation_of<Llama, Strategy<TensorParallel<4>>>({.samples = 4, .context = 8});
  const Communication* copies = find(program.stages[0], "gradients of copied heads");
  REQUIRE(copies != nullptr);
  CHECK(copies->axis == "tensor / 2");
  // A key and a value head of 4 features on each rank, in three blocks.
  CHECK(copies->calls == 6);
  CHECK(copies->bytes == 3 * 2 * 4 * 16 * 4);
}

// fault E1
TEST_CASE("the bubble of a schedule") {
  using S = Strategy<PipelineParallel<4>>;
  using Deep = models::Gpt<models::GptShape{.vocab = 17, .context = 8, .width = 16, .heads = 4, .layers = 4}>;
  CHECK(explanation_of<Deep, S>({.samples = 2, .context = 8, .micro_batches = 2}).bubble ==
        doctest::Approx(0.6).epsilon(1e-12));
  CHECK(explanation_of<Deep, S>({.samples = 8, .context = 8, .micro_batches = 8}).bubble ==
        doctest::Approx(3.0 / 11).epsilon(1e-12));
}

TEST_CASE("the text names what it explains and fits a terminal") {
  using S = Strategy<DataParallel<dynamic>, PipelineParallel<3>, TensorParallel<2, SequenceParallel>>;
  const std::string text = explain<Llama, S>({.samples = 64, .context = 8, .micro_batches = 16}, {.ranks = 12});
  for (const std::string_view part :
       {"DataParallel<dynamic> x PipelineParallel<3, OneForwardOneBackward> x TensorParallel<2, SequenceParallel>",
        "12 ranks = tensor 2 x data 2 x pipeline 3", "attention.qkv", "CausalSelfAttention", "blocks.0-2",
        "split<sequence> to replicated: all-gather 1.0 KiB; backward: reduce-scatter 1.0 KiB", "in flight",
        "2 optimizer states", "gradients, one call a bucket", "stage 2 | .  "}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    CHECK(end - begin <= 120);
    CHECK((end == begin || text[end - 1] != ' '));
    begin = end + 1;
  }
  CHECK(explain<Llama, Serial>({.samples = 1, .context = 8}).find("communication: none") != std::string::npos);
  using Chunked = Strategy<TensorParallel<4, SequenceParallel>, ChunkedLoss<9>>;
  CHECK(explain<Llama, Chunked>({.samples = 3, .context = 8}).find("runs with the loss in 3 chunks; forward") !=
        std::string::npos);
}

TEST_CASE("the guide's strategy") {
  namespace dt = dtrain;
  using Model = dt::models::Gpt<dt::models::GptShape{.vocab = 32, .context = 16, .width = 16, .heads = 4, .layers = 2}>;
  // [snippet strategy]
  using Strategy =
      dt::Strategy<dt::DataParallel<dt::dynamic>, dt::PipelineParallel<2, dt::schedule::OneForwardOneBackward>,
                   dt::TensorParallel<2, dt::SequenceParallel>>;
  // [end snippet]
  // [snippet explain]
  const dt::BatchShape batch{.samples = 64, .context = 16, .micro_batches = 4};
  const std::string text = dt::explain<Model, Strategy>(batch, {.ranks = 16});
  // [end snippet]
  CHECK(text.find("16 ranks = tensor 2 x data 4 x pipeline 2") != std::string::npos);
}

TEST_CASE("a batch or a world that does not fit is refused") {
  using S = Strategy<DataParallel<dynamic>, TensorParallel<2>>;
  const BatchShape shape{.samples = 4, .context = 8};
  CHECK_THROWS_WITH_AS(static_cast<void>(explain<Gpt, S>(shape)),
                       "dtrain: strategy DataParallel<dynamic> x TensorParallel<2> has a dynamic degree; say for how "
                       "many ranks, by the option `ranks`.",
                       ConfigurationError);
  CHECK_THROWS_WITH_AS(static_cast<void>(explain<Gpt, S>(shape, {.ranks = 3})),
                       "dtrain: strategy DataParallel<dynamic> x TensorParallel<2> needs a multiple of 2 ranks, but "
                       "there are 3. Start that many, or choose another strategy.",
                       ConfigurationError);
  CHECK_THROWS_AS(static_cast<void>(explain<Gpt, S>(shape, {.ranks = 6})), ConfigurationError);
  CHECK_THROWS_AS(static_cast<void>(explain<Gpt, Serial>({.samples = 4, .context = 9})), ConfigurationError);
}
