// The memory that all chunks of a rank share: values of the forward pass, gradients of activations, gathered units.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/parallel/rank_plan.hpp"
#include "dtrain/parallel/site.hpp"

namespace dtrain::parallel {

/// Used by one unit after the other; nothing in it outlives the pass of a micro-batch but the constants.
template <class Lowered, NumberFormat Format, class Device>
class Workspace {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;
  using Plan = RankPlan<Lowered, Format>;

 public:
  /// Allocates what does not depend on the batch.
  Workspace(Device& device, const Plan& plan) : device_(device), shared_(plan.shared()) {
    if (plan.gather_buffers() > 0)
      gathered_ = device.allocate(plan.gather_buffers() * shared_.gathered * static_cast<Index>(sizeof(T)));
    if (plan.bucket_buffers() > 0)
      buckets_ = device.allocate(plan.bucket_buffers() * shared_.gathered * static_cast<Index>(sizeof(G)));
    if (plan.converted_bucket_bytes() > 0)
      converted_ = device.allocate(plan.bucket_buffers() * plan.converted_bucket_bytes());
  }

  /// Makes room for micro-batches of up to `rows` rows of samples of `context`.
  [[gnu::cold]] void reserve(Index rows, Index context) {
    if (context != context_) prepare_constants(context);
    if (rows <= rows_) return;
    rows_ = rows;
    transient_ = {};
    transient_ = device_.allocate(bytes(shared_.extent()) + loss_bytes());
    recomputed_ = transient_.data() + bytes(shared_.transient);
    exchange_ = recomputed_ + bytes(shared_.recomputed);
    restore_pool();
  }
  [[nodiscard]] Index context() const { return context_; }
  /// Bytes of the arenas; of the transient one, a part are the logits of a chunk of rows.
  [[nodiscard]] MemoryPlan allocated() const {
    Index logits = 0;
    if constexpr (LossUnit<Lowered, T>::apart) {
      using Chunk = StagePlan<Lowered, Format>;
      const Index rows = LossUnit<Lowered, T>::largest_chunk(rows_);
      logits = shared_.loss_logits.bytes(Chunk::row_capacity(rows), Chunk::shard_capacity(rows));
    }
    return {.logits = logits,
            .transient = transient_.bytes() - logits,
            .gathered = gathered_.bytes(),
            .buckets = buckets_.bytes() + converted_.bytes(),
            .constants = constants_.bytes()};
  }

  [[nodiscard]] std::byte* transient() { return transient_.data(); }
  [[nodiscard]] std::byte* recomputed() { return recomputed_; }
  [[nodiscard]] std::byte* exchange() { return exchange_; }
  /// The values of the unit that runs together with the loss, for one chunk of rows.
  [[nodiscard]] std::byte* loss_chunk() { return transient_.data() + bytes(shared_.extent()); }
  /// The places of activation gradients. A backward pass may exchange them; `restore_pool` puts all back.
  [[nodiscard]] std::vector<std::byte*>& gradient_pool() { return pool_; }
  void restore_pool() {
    pool_.resize(static_cast<std::size_t>(shared_.gradient_slots));
    std::byte* at = exchange_ + bytes(shared_.exchange);
    for (std::byte*& slot : pool_) {
      slot = at;
      at += bytes(shared_.gradient_slot);
    }
  }
  /// Constants of the units of an element.
  [[nodiscard]] const Accumulator<T>* constants(int element) const {
    return reinterpret_cast<const Accumulator<T>*>(constants_.data()) +
           constants_offset_[static_cast<std::size_t>(element)];
  }
  /// A buffer of whole parameters, and of whole gradients, each large enough for any unit.
  [[nodiscard]] std::span<T> gather_buffer(Index number) { return buffer<T>(gathered_, number); }
  [[nodiscard]] std::span<G> bucket(Index number) { return buffer<G>(buckets_, number); }
  /// The same gradients as they are reduced, where `R` is not `G`.
  template <Scalar R>
  [[nodiscard]] std::span<R> converted_bucket(Index number) {
    return buffer<R>(converted_, number);
  }

 private:
  using Arena = typename Device::Arena;

  template <class Element>
  [[nodiscard]] std::span<Element> buffer(Arena& arena, Index number) {
    return arena.template elements<Element>(number * shared_.gathered * static_cast<Index>(sizeof(Element)),
                                            shared_.gathered);
  }
  [[nodiscard]] Index bytes(Extent extent) const {
    using Chunk = StagePlan<Lowered, Format>;
    return extent.bytes(Chunk::row_capacity(rows_), Chunk::shard_capacity(rows_));
  }

  [[nodiscard]] Index loss_bytes() const {
    using Chunk = StagePlan<Lowered, Format>;
    const Index rows = LossUnit<Lowered, T>::largest_chunk(rows_);
    return shared_.loss_chunk.bytes(Chunk::row_capacity(rows), Chunk::shard_capacity(rows));
  }

  [[gnu::cold]] void prepare_constants(Index context) {
    constexpr auto size = static_cast<Index>(sizeof(Accumulator<T>));
    constants_offset_ = Lowered::constants_offsets(context);
    constants_ = {};
    constants_ = device_.allocate(constants_offset_.back() * size, Contents::zero);
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (fill_constants<static_cast<int>(E)>(context), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
    context_ = context;
  }
  template <int E>
  [[gnu::cold]] void fill_constants(Index context) {
    using U = typename Lowered::template UnitOf<E>;
    U::fill_constants(
        context, constants_.template elements<Accumulator<T>>(
                     constants_offset_[E] * static_cast<Index>(sizeof(Accumulator<T>)), U::constants_size(context)));
  }

  Device& device_;
  SharedPlan shared_;
  Arena transient_{};
  Arena gathered_{};
  Arena buckets_{};
  Arena converted_{};
  Arena constants_{};
  std::byte* recomputed_ = nullptr;
  std::byte* exchange_ = nullptr;
  std::vector<std::byte*> pool_{};
  std::array<Index, Lowered::elements + 1> constants_offset_{};
  Index rows_ = 0;
  Index context_ = 0;
};

}  // namespace dtrain::parallel
