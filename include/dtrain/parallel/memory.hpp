// The bytes of every rank by kind, known while the program compiles; and whether a program fits.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "dtrain/comm/self.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/batch_shape.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/shard_communicators.hpp"
#include "dtrain/parallel/stages.hpp"

namespace dtrain::parallel {

/// What neither the model nor the strategy knows.
struct MemoryOptions {
  /// Ranks of the world; 0 stands for those that the strategy's own degrees make. A `dynamic` degree needs the number.
  int ranks = 0;
  /// Numbers that the optimizer keeps per parameter, master weights apart: `AdamW::states` is two.
  int optimizer_states = 2;
};

/// What one chunk of a stage keeps of each micro-batch in flight.
struct ChunkMemory {
  int in_flight = 0;      ///< micro-batches at once
  Index activations = 0;  ///< bytes of each, with the messages between stages
  Index logits = 0;       ///< bytes of each; under `ChunkedLoss` none
  friend constexpr bool operator==(const ChunkMemory&, const ChunkMemory&) = default;
};

/// Bytes of one rank, the optimizer's among them.
template <int Chunks>
struct RankMemory {
  MemoryPlan program{};
  Index optimizer = 0;  ///< its states and master weights
  std::array<ChunkMemory, static_cast<std::size_t>(Chunks)> chunks{};

  [[nodiscard]] constexpr Index total() const { return program.total() + optimizer; }
  friend constexpr bool operator==(const RankMemory&, const RankMemory&) = default;
};

/// Bytes of a program: of each pipeline stage the rank that holds most.
template <int Stages, int Chunks>
struct ProgramMemory {
  std::array<RankMemory<Chunks>, static_cast<std::size_t>(Stages)> stages{};
  Index all_ranks = 0;  ///< of all ranks of the world together

  /// The bytes of the largest rank.
  [[nodiscard]] constexpr Index largest() const {
    Index most = 0;
    for (const RankMemory<Chunks>& stage : stages) most = stage.total() > most ? stage.total() : most;
    return most;
  }
};

/// The ranks that a strategy is looked at for: `ranks`, or where that is 0 as many as its own degrees make. Throws
/// ConfigurationError where the launch decides a degree and `ranks` is 0.
template <class S>
[[nodiscard]] constexpr int ranks_of(int ranks) {
  if (ranks == 0 && S::has_dynamic)
    throw ConfigurationError(concatenate("dtrain: strategy ", S::describe(),
                                         " has a dynamic degree; say for how many ranks, by the option `ranks`."));
  return ranks == 0 ? S::static_ranks : ranks;
}

namespace detail {

// The arithmetic of one program.
template <class Model, class S, NumberFormat Format>
struct MemoryOf {
  using T = typename PrecisionOf<Format>::Parameter;
  using Lowered = LoweredFor<Model, S, T>;
  using Plan = RankPlan<Lowered, Format>;
  static_assert(Lowered::check());
  static_assert(Stages<Lowered, S>::check());
  static constexpr int stages = S::Pipeline::degree;
  static constexpr int chunks = S::Pipeline::chunks;
  using Slots = std::array<int, static_cast<std::size_t>(chunks)>;

  // Micro-batches in flight on each chunk of each stage.
  [[nodiscard]] static constexpr std::array<Slots, static_cast<std::size_t>(stages)> slots(int micro_batches) {
    std::array<Slots, static_cast<std::size_t>(stages)> result{};
    const auto tables = schedule::tables_of<typename S::Pipeline::Schedule>(stages, micro_batches, chunks);
    for (std::size_t s = 0; s < result.size(); ++s)
      for (std::size_t c = 0; c < result[s].size(); ++c) result[s][c] = tables[s].slots_of(static_cast<int>(c));
    return result;
  }

  // A rank whose plan is given, in a world of `shares` shares of the batch.
  [[nodiscard]] static constexpr RankMemory<chunks> of(const Plan& plan, const BatchShape& batch, int shares,
                                                       std::span<const int> slots, int optimizer_states) {
    using Master = typename PrecisionOf<Format>::Master;
    const Index rows = batch.micro_batch_rows(shares);
    RankMemory<chunks> result{
        .program = plan.memory(
            {.rows = rows, .local_rows = batch.local_rows(shares), .context = batch.context, .slots = slots})};
    for (std::size_t c = 0; c < plan.chunks().size(); ++c) {
      const auto& chunk = plan.chunks()[c];
      const Index full = chunk.row_capacity(rows);
      const Index shard = chunk.shard_capacity(rows);
      const Index logits = chunk.logits().bytes(full, shard);
      result.chunks[c] = {slots[c], chunk.slot().bytes(full, shard) - logits, logits};
      result.optimizer += (optimizer_states + (PrecisionOf<Format>::has_master ? 1 : 0)) * plan.updated_parameters(c) *
                          static_cast<Index>(sizeof(Master));
    }
    return result;
  }

  [[nodiscard]] static constexpr ProgramMemory<stages, chunks> all(const BatchShape& batch,
                                                                   const MemoryOptions& options) {
    const Mesh<S> mesh(ranks_of<S>(options.ranks), 0);
    const int shares = mesh.batch_share().size;
    check_batch(batch, shares, Lowered::max_context);
    const auto in_flight = slots(batch.micro_batches);
    const int shard_ranks = ShardCommunicators<S, comm::Self>::place(mesh).size;
    const Index alike = mesh.ranks() / stages / shard_ranks;
    ProgramMemory<stages, chunks> result;
    for (std::size_t s = 0; s < result.stages.size(); ++s)
      for (int shard = 0; shard < shard_ranks; ++shard) {
        const auto plan = plan_of_rank<Lowered, S, Format>(static_cast<int>(s), shard_ranks, shard);
        const auto rank = of(plan, batch, shares, std::span<const int>(in_flight[s]), options.optimizer_states);
        // The first shards are as large as any.
        if (shard == 0) result.stages[s] = rank;
        result.all_ranks += alike * rank.total();
      }
    return result;
  }
};

}  // namespace detail

/// The bytes of the program that `Model` lowers to under `S`: what the arenas of its ranks will hold for batches of
/// this shape, to the byte. Scratch that operations ask a device for is apart. Throws ConfigurationError, or is no
/// constant, where the batch or the world cannot be dealt out.
template <class Model, class S, NumberFormat Format = float>
[[nodiscard]] constexpr auto memory(const BatchShape& batch, const MemoryOptions& options = {}) {
  return detail::MemoryOf<Model, S, Format>::all(batch, options);
}

/// The bytes of one rank of the world.
template <class Model, class S, NumberFormat Format = float>
[[nodiscard]] constexpr auto memory_of_rank(int rank, const BatchShape& batch, const MemoryOptions& options = {}) {
  using Of = detail::MemoryOf<Model, S, Format>;
  const Mesh<S> mesh(ranks_of<S>(options.ranks), rank);
  check_batch(batch, mesh.batch_share().size, Of::Lowered::max_context);
  const auto stage = mesh.template along<axes::Pipeline>().rank;
  const Coordinate shard = ShardCommunicators<S, comm::Self>::place(mesh);
  const auto plan = plan_of_rank<typename Of::Lowered, S, Format>(stage, shard.size, shard.rank);
  const auto in_flight = Of::slots(batch.micro_batches);
  return Of::of(plan, batch, mesh.batch_share().size, std::span<const int>(in_flight[static_cast<std::size_t>(stage)]),
                options.optimizer_states);
}

/// Bytes in so many gibibytes and mebibytes.
template <Index Count>
inline constexpr Index GiB = Count * 1024 * 1024 * 1024;
template <Index Count>
inline constexpr Index MiB = Count * 1024 * 1024;

/// The degrees of a strategy, `Degrees` together, make up `Ranks`; a multiple of them where one is `Dynamic`.
template <int Ranks, int Degrees, bool Dynamic>
concept DegreesMakeRanks = Ranks >= 1 && Ranks % Degrees == 0 && (Dynamic || Ranks == Degrees);

/// The samples of a batch divide over the shares of it and their micro-batches.
template <Index Samples, int Shares, int MicroBatches>
concept SamplesDivide = Samples >= 1 && MicroBatches >= 1 && Samples % (Index{Shares} * MicroBatches) == 0;

/// The model takes samples of this context; `Most` of 0 is no limit.
template <Index Context, Index Most>
concept ContextWithinModel = Context >= 1 && (Most == 0 || Context <= Most);

/// A number of bytes as a type, which compilers print where a constraint fails.
template <Index Count>
struct Bytes {
  static constexpr Index count = Count;
};

/// The largest rank needs no more bytes than there are.
template <class Needed, class There>
concept BytesSuffice = Needed::count <= There::count;

namespace detail {

template <class Model, class S, BatchShape Batch, NumberFormat Format, int OptimizerStates, int Ranks>
struct Fitting {
  static constexpr int ranks = Ranks == 0 ? S::static_ranks : Ranks;
  static constexpr bool has_ranks = DegreesMakeRanks<ranks, S::static_ranks, S::has_dynamic>;
  static constexpr int shares = [] {
    if constexpr (has_ranks)
      return Mesh<S>(ranks, 0).batch_share().size;
    else
      return 1;
  }();
  static constexpr bool deals_out = SamplesDivide<Batch.samples, shares, Batch.micro_batches>;
  static constexpr Index most_context = MemoryOf<Model, S, Format>::Lowered::max_context;
  static constexpr bool runs = has_ranks && deals_out && ContextWithinModel<Batch.context, most_context>;
  static constexpr Index bytes = [] {
    if constexpr (runs)
      return memory<Model, S, Format>(Batch, {.ranks = ranks, .optimizer_states = OptimizerStates}).largest();
    else
      return Index{0};
  }();
  using Needed = Bytes<bytes>;
};

}  // namespace detail

/// Every rank of `Model` under `S` fits into `Limit` bytes for batches of this shape, the optimizer's state included:
/// `static_assert(Fits<Model, Strategy, BatchShape{8, 2048}, GiB<80>>)`. Where it is not so, compilers print the bytes
/// that are needed. `Ranks` of 0 stands for those that the strategy's degrees make.
template <class Model, class S, BatchShape Batch, Index Limit, class Format = float, int OptimizerStates = 2,
          int Ranks = 0>
concept Fits =
    detail::Fitting<Model, S, Batch, Format, OptimizerStates, Ranks>::runs &&
    BytesSuffice<typename detail::Fitting<Model, S, Batch, Format, OptimizerStates, Ranks>::Needed, Bytes<Limit>>;

/// The same as a refusal in a sentence: `static_assert(RequireFit<Model, Strategy, BatchShape{8, 2048},
/// GiB<80>>::value)`.
template <class Model, class S, BatchShape Batch, Index Limit, class Format = float, int OptimizerStates = 2,
          int Ranks = 0>
struct RequireFit {
  using Fitting = detail::Fitting<Model, S, Batch, Format, OptimizerStates, Ranks>;
  static_assert(DegreesMakeRanks<Fitting::ranks, S::static_ranks, S::has_dynamic>,
                "dtrain: the degrees of the strategy do not make up the ranks of the world");
  static_assert(SamplesDivide<Batch.samples, Fitting::shares, Batch.micro_batches>,
                "dtrain: the samples of the batch do not divide over its shares and their micro-batches");
  static_assert(ContextWithinModel<Batch.context, Fitting::most_context>,
                "dtrain: the batch has a longer context than the model takes");
  static_assert(BytesSuffice<typename Fitting::Needed, Bytes<Limit>>,
                "dtrain: the largest rank of the program needs more memory than it has");
  static constexpr bool value = true;
};

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::Fits;
using parallel::GiB;
using parallel::memory;
using parallel::MemoryOptions;
using parallel::MiB;
using parallel::RequireFit;
}  // namespace dtrain
