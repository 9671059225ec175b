// The memory of one rank: the plans of its chunks, what they share, and the bytes of each kind.
#pragma once

#include <span>
#include <vector>

#include "dtrain/parallel/sharding.hpp"
#include "dtrain/parallel/stage_plan.hpp"
#include "dtrain/parallel/zero.hpp"

namespace dtrain::parallel {

/// Bytes of one rank by kind. What is planned is what is allocated.
struct MemoryPlan {
  Index parameters = 0;   ///< what the rank keeps: its shard, under ZeRO 3
  Index gradients = 0;    ///< of parameters; its shard, from ZeRO 2 on
  Index activations = 0;  ///< of all micro-batches in flight, with the messages between stages
  Index logits = 0;       ///< of all micro-batches in flight, or of one chunk of rows
  Index transient = 0;    ///< shared by all layers: values of the forward pass, gradients of activations
  Index gathered = 0;     ///< whole parameters of the units at work, under ZeRO 3
  Index buckets = 0;      ///< whole gradients of the units at work, from ZeRO 2 on; gradients as they are reduced
  Index constants = 0;
  Index tokens = 0;  ///< inputs and targets of the local batch

  [[nodiscard]] constexpr Index total() const {
    return parameters + gradients + activations + logits + transient + gathered + buckets + constants + tokens;
  }
  constexpr MemoryPlan& operator+=(const MemoryPlan& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    activations += other.activations;
    logits += other.logits;
    transient += other.transient;
    gathered += other.gathered;
    buckets += other.buckets;
    constants += other.constants;
    tokens += other.tokens;
    return *this;
  }
  friend constexpr bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

/// Whole gradients of so many units exist at once from ZeRO 2 on: one is being filled, one is on its way.
inline constexpr int gradient_buffers = 2;

/// What a rank's memory is planned for.
struct MemoryRequest {
  Index rows = 0;        ///< of a micro-batch
  Index local_rows = 0;  ///< of the local batch
  Index context = 1;
  std::span<const int> slots{};  ///< micro-batches in flight, of each chunk
};

/// The plan of a rank that holds the chunks of units in `ranges`.
template <class Lowered, NumberFormat Format>
class RankPlan {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;

 public:
  /// The rank is number `shard_rank` of the `shard_ranks` that share out what `sharding` says. `converted` are the
  /// bytes of a gradient in the type in which the data axis reduces it; 0 where that is its own.
  constexpr RankPlan(std::span<const Range> ranges, RecomputationRule recomputation, ShardingRule sharding,
                     int shard_ranks, int shard_rank, Index converted)
      : sharding_(sharding), converted_(converted) {
    for (const Range& units : ranges) {
      chunks_.emplace_back(units, recomputation);
      shared_.include(chunks_.back().shared());
      shards_.emplace_back(chunks_.back().group_ends(), shard_ranks, shard_rank);
    }
  }

  [[nodiscard]] constexpr const std::vector<StagePlan<Lowered, Format>>& chunks() const { return chunks_; }
  [[nodiscard]] constexpr const std::vector<Sharding>& shards() const { return shards_; }
  [[nodiscard]] constexpr const SharedPlan& shared() const { return shared_; }
  [[nodiscard]] constexpr const ShardingRule& sharding() const { return sharding_; }

  /// Elements of one buffer of whole parameters or gradients, and how many of them there are.
  [[nodiscard]] constexpr Index gather_buffers() const {
    return sharding_.shards_parameters() ? Index{sharding_.prefetch} + 1 : 0;
  }
  [[nodiscard]] constexpr Index bucket_buffers() const { return sharding_.shards_gradients() ? gradient_buffers : 0; }

  /// Elements of parameters and gradients that the rank keeps of chunk `c`, and of what the optimizer updates.
  [[nodiscard]] constexpr Index kept_parameters(std::size_t c) const {
    return sharding_.shards_parameters() ? shards_[c].size() : chunks_[c].parameter_size();
  }
  [[nodiscard]] constexpr Index kept_gradients(std::size_t c) const {
    return sharding_.shards_gradients() ? shards_[c].size() : chunks_[c].parameter_size();
  }
  /// Bytes of chunk `c`'s gradients as they are reduced, and of such a buffer of whole gradients.
  [[nodiscard]] constexpr Index converted_bytes(std::size_t c) const {
    return sharding_.shards_gradients() ? 0 : chunks_[c].parameter_size() * converted_;
  }
  [[nodiscard]] constexpr Index converted_bucket_bytes() const { return shared_.gathered * converted_; }
  [[nodiscard]] constexpr Index updated_parameters(std::size_t c) const { return shards_[c].size(); }

  [[nodiscard]] constexpr MemoryPlan memory(const MemoryRequest& request) const {
    MemoryPlan plan;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      const auto& chunk = chunks_[c];
      const Index full = chunk.row_capacity(request.rows);
      const Index shard = chunk.shard_capacity(request.rows);
      const Index logits = request.slots[c] * chunk.logits().bytes(full, shard);
      plan.parameters += kept_parameters(c) * static_cast<Index>(sizeof(T));
      plan.gradients += kept_gradients(c) * static_cast<Index>(sizeof(G));
      plan.buckets += converted_bytes(c);
      plan.logits += logits;
      plan.activations += request.slots[c] * chunk.slot().bytes(full, shard) - logits;
      plan.tokens += chunk.token_bytes(request.local_rows);
    }
    using Chunk = StagePlan<Lowered, Format>;
    plan.transient = shared_.extent().bytes(Chunk::row_capacity(request.rows), Chunk::shard_capacity(request.rows));
    if constexpr (LossUnit<Lowered, T>::apart) {
      const Index chunk = LossUnit<Lowered, T>::largest_chunk(request.rows);
      const Index logits = shared_.loss_logits.bytes(Chunk::row_capacity(chunk), Chunk::shard_capacity(chunk));
      plan.logits += logits;
      plan.transient += shared_.loss_chunk.bytes(Chunk::row_capacity(chunk), Chunk::shard_capacity(chunk)) - logits;
    }
    plan.gathered = gather_buffers() * shared_.gathered * static_cast<Index>(sizeof(T));
    plan.buckets += bucket_buffers() * (shared_.gathered * static_cast<Index>(sizeof(G)) + converted_bucket_bytes());
    plan.constants = Lowered::constants_offsets(request.context).back() * static_cast<Index>(sizeof(Accumulator<T>));
    return plan;
  }

 private:
  ShardingRule sharding_;
  Index converted_;
  std::vector<StagePlan<Lowered, Format>> chunks_;
  std::vector<Sharding> shards_;
  SharedPlan shared_{};
};

}  // namespace dtrain::parallel
