// optimise: O0
#include "dtrain/parallel/memory.hpp"

#include <doctest/doctest.h>

#include <array>
#include <mutex>

#include "../comm/run_ranks.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/models/gpt.hpp"
#include "dtrain/models/mlp.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/sgd.hpp"
#include "dtrain/parallel/program.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "dtrain/train/optimizer_state.hpp"

using namespace dtrain;
using namespace dtrain::parallel;

namespace {

// Neither the vocabulary nor a bias divides over three ranks, and the head is tied.
using Gpt = models::Gpt<models::GptShape{.vocab = 17, .context = 8, .width = 16, .heads = 4, .layers = 4}>;

// On every rank, what is predicted is what lies in the arenas once a batch has been prepared, of each kind and to the
// byte. (The equivalence tests compare the totals after steps, for every strategy of theirs.)
template <class S, class Format = float, class Optimizer = optim::AdamW, class Model = Gpt>
void compare(int ranks, const BatchShape& shape) {
  const MemoryOptions options{.ranks = ranks, .optimizer_states = Optimizer::states};
  const auto program = memory<Model, S, Format>(shape, options);
  std::mutex mutex;
  Index all = 0;
  Index largest = 0;
  tests::run_ranks(ranks, [&](comm::Threads& world) {
    Host device;
    AxisCommunicators<S, comm::Threads> axes(world);
    Program<Model, S, Format, Host, comm::Threads> run(device, axes, 7);
    std::vector<train::OptimizerState<Optimizer, Format, Host>> states;
    for (auto& chunk : run.chunks()) states.emplace_back(device, std::as_const(*chunk).stage().store(), 7);
    run.prepare(shape, true);
    Index optimizer = 0;
    for (const auto& state : states) optimizer += state.bytes();

    const std::lock_guard lock(mutex);
    const auto rank = memory_of_rank<Model, S, Format>(world.rank(), shape, options);
    CAPTURE(S::describe());
    CAPTURE(world.rank());
    CHECK(rank.program == run.memory());
    CHECK(rank.program == run.allocated());
    CHECK(rank.optimizer == optimizer);
    CHECK(rank.total() == device.live_bytes());
    Index kept = 0;
    for (const ChunkMemory& chunk : rank.chunks) kept += chunk.in_flight * (chunk.activations + chunk.logits);
    // The logits of a chunk of rows are nobody's.
    CHECK(kept == rank.program.activations + (S::loss_rows > 0 ? 0 : rank.program.logits));
    const auto& stage = program.stages[static_cast<std::size_t>(run.stage_index())];
    CHECK(rank.total() <= stage.total());
    all += device.live_bytes();
    largest = std::max(largest, device.live_bytes());
  });
  CHECK(all == program.all_ranks);
  CHECK(largest == program.largest());
}

using schedule::GPipe;
using schedule::Interleaved1F1B;
using schedule::ZeroBubbleV;
using Full = Recompute<recompute::Full>;

}  // namespace

TEST_CASE("every rank allocates what is predicted, to the byte") {
  compare<Strategy<DataParallel<3, Zero<2>>, TensorParallel<2, SequenceParallel>>>(
      6, {.samples = 12, .context = 7, .micro_batches = 2});
  compare<Strategy<DataParallel<dynamic, Zero<3, ShardWithin<2>, Prefetch<2>>>, Recompute<recompute::EveryBlock<2>>,
                   ChunkedLoss<5>>>(4, {.samples = 8, .context = 8});
  const BatchShape four{.samples = 8, .context = 7, .micro_batches = 4};
  compare<Strategy<DataParallel<2, Zero<3>>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>, Full>>(4, four);
  compare<Strategy<DataParallel<2, Zero<1>>, PipelineParallel<2, ZeroBubbleV>>>(4, four);
}

TEST_CASE("the optimizer and the number format count") {
  const BatchShape shape{.samples = 6, .context = 8, .micro_batches = 1};
  compare<Strategy<DataParallel<3, Zero<3>>, Full>, dtrain::bfloat16>(3, shape);
  compare<Strategy<DataParallel<3, Zero<2>>>, Precision<dtrain::bfloat16, dtrain::bfloat16>, optim::Sgd>(3, shape);
}

namespace {

// No parameter of it needs padding: all widths are multiples of 32.
using Aligned = models::Gpt<models::GptShape{.vocab = 64, .context = 32, .width = 64, .heads = 4, .layers = 3}>;
using Mixed = Precision<dtrain::bfloat16, dtrain::bfloat16>;
inline constexpr Index aligned_parameters = 64 * 64 + 32 * 64 + 3 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
inline constexpr BatchShape small{.samples = 8, .context = 32};

// Bytes of parameters, gradients and optimizer state; what ZeRO gathers for the units at work is transient.
template <class Model, class S>
constexpr Index model_states() {
  const auto rank = memory<Model, S, Mixed>(small).stages[0];
  return rank.program.parameters + rank.program.gradients + rank.optimizer;
}

constexpr Index P = aligned_parameters;
static_assert(model_states<Aligned, Serial>() == 16 * P);
static_assert(model_states<Aligned, Strategy<DataParallel<4>>>() == 16 * P);

}  // namespace

// fault I9
TEST_CASE("ZeRO's published formulas, exactly where nothing is padded") {
  static_assert(model_states<Aligned, Strategy<DataParallel<2, Zero<1>>>>() == 4 * P + 12 * P / 2);
  static_assert(model_states<Aligned, Strategy<DataParallel<4, Zero<1>>>>() == 4 * P + 12 * P / 4);
  static_assert(model_states<Aligned, Strategy<DataParallel<4, Zero<2>>>>() == 2 * P + 14 * P / 4);
  static_assert(model_states<Aligned, Strategy<DataParallel<4, Zero<3>>>>() == 16 * P / 4);
  // Shards in groups of two, whatever the number of groups.
  static_assert(model_states<Aligned, Strategy<DataParallel<4, Zero<3, ShardWithin<2>>>>>() == 16 * P / 2);
  static_assert(P % 8 == 0);
}

// fault I9
TEST_CASE("ZeRO's published formulas, within five per cent where parameters are padded and shards are uneven") {
  // 50 classes and a width of 40: biases end in padding, and no size divides by three.
  using Odd = models::Gpt<models::GptShape{.vocab = 50, .context = 30, .width = 40, .heads = 4, .layers = 3}>;
  constexpr double p = 50 * 40 + 30 * 40 + 3 * (12 * 40 * 40 + 13 * 40) + 2 * 40;
  const auto bytes = []<class S>(std::type_identity<S>) {
    const auto rank = memory<Odd, S, Mixed>({.samples = 6, .context = 30}).stages[0];
    return double(rank.program.parameters + rank.program.gradients + rank.optimizer);
  };
  const std::array<std::array<double, 2>, 3> pairs{
      {{bytes(std::type_identity<Strategy<DataParallel<3, Zero<1>>>>{}), 4 * p + 12 * p / 3},
       {bytes(std::type_identity<Strategy<DataParallel<3, Zero<2>>>>{}), 2 * p + 14 * p / 3},
       {bytes(std::type_identity<Strategy<DataParallel<3, Zero<3>>>>{}), 16 * p / 3}}};
  for (const auto& [counted, published] : pairs) {
    CHECK(counted > published);
    CHECK(counted < 1.05 * published);
  }
}

TEST_CASE("a program fits, or does not, by a byte") {
  using S = Strategy<DataParallel<2, Zero<3>>, PipelineParallel<2>>;
  constexpr BatchShape batch{.samples = 4, .context = 32, .micro_batches = 2};
  constexpr Index needed = memory<Aligned, S>(batch).largest();
  static_assert(Fits<Aligned, S, batch, needed>);
  static_assert(!Fits<Aligned, S, batch, needed - 1>);
  static_assert(RequireFit<Aligned, S, batch, needed>::value);
  // Half the numbers, and one state less.
  static_assert(Fits<Aligned, S, batch, needed - 1, dtrain::bfloat16>);
  static_assert(Fits<Aligned, S, batch, needed - 1, float, 1>);
  // A batch that cannot be dealt out, or is too long, and a world of the wrong size fit nowhere.
  static_assert(!Fits<Aligned, S, BatchShape{3, 32, 1}, GiB<80>>);
  static_assert(!Fits<Aligned, S, BatchShape{4, 33, 1}, GiB<80>>);
  static_assert(!Fits<Aligned, S, batch, GiB<80>, float, 2, 8>);
  using Launched = Strategy<DataParallel<dynamic, Zero<3>>, PipelineParallel<2>>;
  static_assert(!Fits<Aligned, Launched, batch, needed - 1, float, 2, 4>);
  static_assert(Fits<Aligned, Launched, BatchShape{8, 32, 2}, needed - 1, float, 2, 8>);
  CHECK(MiB<3> == 3 * 1024 * 1024);
}

TEST_CASE("more micro-batches under recomputation, or fewer in flight, take less") {
  constexpr BatchShape batch{.samples = 16, .context = 32, .micro_batches = 8};
  using Deep = models::Gpt<models::GptShape{.vocab = 64, .context = 32, .width = 64, .heads = 4, .layers = 4}>;
  constexpr auto all = memory<Deep, Strategy<PipelineParallel<4, GPipe>>>(batch);
  constexpr auto few = memory<Deep, Strategy<PipelineParallel<4>>>(batch);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    CHECK(all.stages[stage].chunks[0].in_flight == 8);
    CHECK(few.stages[stage].chunks[0].in_flight == 4 - static_cast<int>(stage));
    CHECK(all.stages[stage].chunks[0].activations == few.stages[stage].chunks[0].activations);
  }
  // Of a block that is recomputed, only its output is kept.
  constexpr auto kept = memory<Deep, Serial>(batch).stages[0];
  constexpr auto computed_again = memory<Deep, Strategy<Full>>(batch).stages[0];
  const Index row = 64 * 4;
  CHECK(kept.chunks[0].activations > 4 * computed_again.chunks[0].activations);
  CHECK(computed_again.chunks[0].activations >= 4 * 64 * row);
}

TEST_CASE("the guide's program") {
  namespace dt = dtrain;
  // [snippet memory]
  using Model =
      dt::models::Gpt<dt::models::GptShape{.vocab = 50257, .context = 1024, .width = 768, .heads = 12, .layers = 12}>;
  using Strategy = dt::Strategy<dt::DataParallel<8, dt::Zero<3>>, dt::Recompute<dt::recompute::Full>>;

  constexpr auto bytes = dt::memory<Model, Strategy, dt::bfloat16>({.samples = 64, .context = 1024});
  constexpr dt::Index of_a_rank = bytes.largest();
  constexpr dt::Index of_its_optimizer = bytes.stages[0].optimizer;
  constexpr dt::Index of_each_micro_batch = bytes.stages[0].chunks[0].activations;
  // [end snippet]
  // [snippet fits]
  static_assert(dt::Fits<Model, Strategy, dt::BatchShape{64, 1024}, dt::GiB<8>, dt::bfloat16>);
  // [end snippet]
  static_assert(of_its_optimizer + of_each_micro_batch < of_a_rank);
  CHECK(of_a_rank < 8 * MiB<1024>);
}
