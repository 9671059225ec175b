// What one rank holds of a program: its chunks, the memory they share, and the sums over all axes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dtrain/parallel/chunk.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/tied_gradients.hpp"

namespace dtrain::parallel {

/// Neither copied nor moved: its parts refer to each other.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class RankChunks {
  using ChunkType = Chunk<Lowered, S, Format, Device, C>;
  using Store = ParameterStore<Lowered, Format, Device>;

 public:
  /// Collective over the world. Allocates the parameters of all chunks and sets them to their start.
  [[gnu::cold]] RankChunks(Device& device, AxisCommunicators<S, C>& axes, std::uint64_t seed)
      : device_(device),
        axes_(axes),
        plan_(plan_at(axes.mesh())),
        workspace_(device, plan_),
        exchange_(device, axes, workspace_),
        chunks_(make_chunks(seed)),
        ties_(device, axes, stores()) {}
  RankChunks(const RankChunks&) = delete;
  RankChunks& operator=(const RankChunks&) = delete;

  [[nodiscard]] std::vector<std::unique_ptr<ChunkType>>& chunks() { return chunks_; }
  [[nodiscard]] const RankPlan<Lowered, Format>& plan() const { return plan_; }
  // The chunk that holds the model's first or last unit, if this rank does.
  [[nodiscard]] auto* first_stage() {
    for (auto& chunk : chunks_)
      if (chunk->stage().first()) return &chunk->stage();
    return static_cast<decltype(&chunks_.front()->stage())>(nullptr);
  }
  [[nodiscard]] ChunkType* last_chunk() {
    for (auto& chunk : chunks_)
      if (chunk->stage().last()) return chunk.get();
    return nullptr;
  }
  [[nodiscard]] auto* last_stage() {
    ChunkType* const held = last_chunk();
    return held != nullptr ? &held->stage() : nullptr;
  }

  /// Makes room for micro-batches of up to `rows` rows of samples of `context`, so many of them in flight on each chunk
  /// as `slots` says, and for a local batch of `local_rows` rows. Allocates only where there is not enough.
  void reserve(Index rows, Index context, std::span<const int> slots, Index local_rows) {
    rows_ = std::max(rows_, rows);
    local_rows_ = std::max(local_rows_, local_rows);
    workspace_.reserve(rows_, context);
    for (std::size_t c = 0; c < chunks_.size(); ++c) chunks_[c]->stage().reserve(rows_, slots[c], local_rows_);
  }
  /// Planned bytes, for the largest batches that there is room for; and the bytes of the arenas.
  [[nodiscard]] MemoryPlan memory() const {
    std::array<int, static_cast<std::size_t>(S::Pipeline::chunks)> slots{};
    for (std::size_t c = 0; c < slots.size(); ++c) slots[c] = std::as_const(*chunks_[c]).stage().slots();
    return plan_.memory(
        {.rows = rows_, .local_rows = local_rows_, .context = workspace_.context(), .slots = std::span(slots)});
  }
  [[nodiscard]] MemoryPlan allocated() const {
    MemoryPlan bytes = workspace_.allocated();
    for (const auto& chunk : chunks_) bytes += std::as_const(*chunk).stage().allocated();
    return bytes;
  }

  /// Lets `feed(samples, inputs, targets)` fill the local batch of so many rows, as far as this rank holds the first or
  /// last unit, and returns the targets. Throws DataError for tokens and targets out of range.
  template <class Feed>
  std::span<const std::int32_t> fill(Range samples, std::size_t rows, Feed&& feed) {
    using T = typename PrecisionOf<Format>::Parameter;
    auto* const first = first_stage();
    auto* const last = last_stage();
    const auto targets = last != nullptr ? last->targets().first(rows) : std::span<std::int32_t>{};
    if constexpr (Lowered::takes_tokens) {
      const auto tokens = first != nullptr ? first->tokens().first(rows) : std::span<std::int32_t>{};
      feed(samples, tokens, targets);
      check_tokens(tokens, Lowered::template UnitOf<0>::template Layer<0>::vocabulary);
    } else {
      feed(samples,
           first != nullptr ? first->features().first(rows * static_cast<std::size_t>(Lowered::input_width))
                            : std::span<T>{},
           targets);
    }
    ops::check_targets(targets, CrossEntropy<Lowered, T>::classes, ignored_target);
    return targets;
  }

  /// Lets so many passes add gradients to each chunk, which are reduced in the last of them; `first`: from zero.
  void restart(int passes, bool first) {
    for (auto& chunk : chunks_) chunk->restart(passes, first);
  }
  /// Multiplies all gradients that this rank keeps.
  void scale_gradients(double factor) {
    using G = typename PrecisionOf<Format>::Gradient;
    for (auto& chunk : chunks_) ops::scale(device_, chunk->stage().gradients(), static_cast<Accumulator<G>>(factor));
  }
  /// Completes the sums over all axes, once every pass has added its gradients. `gradients` calls it itself.
  void finish_gradients() {
    if constexpr (S::sharding.shards_gradients()) exchange_.scatter.finish();
    for (auto& chunk : chunks_) chunk->reduction().finish();
    ties_.finish();
  }

  /// The global norm of the gradients: every element of every whole parameter counted once.
  [[nodiscard]] double gradient_norm() {
    std::array<double, 1> squares{0.0};
    for (auto& chunk : chunks_) squares[0] += chunk->reduction().counted_squares();
    if constexpr (Lowered::tensor.degree > 1) axes_.tensor().all_reduce(std::span(squares)).wait();
    if constexpr (S::Pipeline::degree > 1) axes_.pipeline().all_reduce(std::span(squares)).wait();
    if constexpr (S::sharding.level > 0) exchange_.shards.shard().all_reduce(std::span(squares)).wait();
    return std::sqrt(squares[0]);
  }
  /// Gives every rank the parameters that others have updated, where ranks share out the optimizer's state.
  void publish_parameters() {
    for (auto& chunk : chunks_) chunk->gather().publish();
  }

 private:
  static void check_tokens(std::span<const std::int32_t> tokens, Index vocabulary) {
    for (std::size_t row = 0; row < tokens.size(); ++row)
      if (tokens[row] < 0 || tokens[row] >= vocabulary)
        throw DataError(concatenate("dtrain: token ", tokens[row], " at row ", row,
                                    " of the batch does not lie in the vocabulary [0, ", vocabulary, ")."));
  }
  [[nodiscard]] static RankPlan<Lowered, Format> plan_at(const Mesh<S>& mesh) {
    const Coordinate shard = ShardCommunicators<S, C>::place(mesh);
    return plan_of_rank<Lowered, S, Format>(mesh.template along<axes::Pipeline>().rank, shard.size, shard.rank);
  }
  [[nodiscard, gnu::cold]] std::vector<std::unique_ptr<ChunkType>> make_chunks(std::uint64_t seed) {
    std::vector<std::unique_ptr<ChunkType>> chunks;
    for (std::size_t c = 0; c < static_cast<std::size_t>(S::Pipeline::chunks); ++c)
      chunks.push_back(std::make_unique<ChunkType>(device_, axes_, workspace_, exchange_, plan_, c, seed));
    return chunks;
  }
  [[nodiscard, gnu::cold]] std::vector<Store*> stores() {
    std::vector<Store*> result;
    for (auto& chunk : chunks_) result.push_back(&chunk->stage().store());
    return result;
  }

  Device& device_;
  AxisCommunicators<S, C>& axes_;
  RankPlan<Lowered, Format> plan_;
  Workspace<Lowered, Format, Device> workspace_;
  RankExchange<Lowered, S, Format, Device, C> exchange_;
  std::vector<std::unique_ptr<ChunkType>> chunks_;
  TiedGradients<Lowered, S, Format, Device, C> ties_;
  Index rows_ = 0;
  Index local_rows_ = 0;
};

}  // namespace dtrain::parallel
