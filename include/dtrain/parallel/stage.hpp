// A pipeline stage, or one chunk of it, on one rank: the forward and backward pass of one micro-batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dtrain/parallel/loss_pass.hpp"
#include "dtrain/parallel/parameter_store.hpp"
#include "dtrain/parallel/workspace.hpp"

namespace dtrain::parallel {

/// The pass in which a unit is entered.
enum class Pass : unsigned char { forward, backward, backward_weights };

/// What lends a unit its parameters and its gradients while it runs: `enter` sets their places in the unit's memory,
/// `leave` is told that the unit has run. Units are entered in the order in which the pass takes them, all that it was
/// begun with. `complete` says of a unit that takes no part in a second half that its gradients are complete if those
/// of the others are.
template <class A, class Memory>
concept ParameterAccess = requires(A& access, Index unit, Memory& memory, Pass pass, Range units) {
  access.begin(pass, units);
  access.enter(unit, memory);
  access.leave(unit);
  access.complete(unit);
};

/// `WholeModel`: the stage is all of the model, which the compiler then knows.
template <class Lowered, NumberFormat Format, class Device, bool WholeModel>
class Stage {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;
  using Loss = CrossEntropy<Lowered, T>;
  using Split = LossUnit<Lowered, T>;
  using Memory = UnitMemory<T, G>;

 public:
  using Store = ParameterStore<Lowered, Format, Device>;
  using Shared = Workspace<Lowered, Format, Device>;

  /// Chunk `chunk` of the rank that `plan` is for.
  Stage(Device& device, Shared& workspace, const RankPlan<Lowered, Format>& plan, std::size_t chunk, int tensor_rank,
        std::uint64_t seed)
      : device_(device),
        workspace_(workspace),
        store_(device, plan, chunk, tensor_rank, seed),
        tensor_rank_(tensor_rank),
        seed_(seed) {
    const Range units = this->plan().units();
    for (Index u = units.begin; u < units.end; ++u) name_hashes_.push_back(hash_name(Lowered::unit_prefix(int(u))));
  }

  [[nodiscard]] const StagePlan<Lowered, Format>& plan() const { return store_.plan(); }
  [[nodiscard]] bool first() const { return WholeModel || plan().first(); }
  [[nodiscard]] bool last() const { return WholeModel || plan().last(); }
  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] int tensor_rank() const { return tensor_rank_; }
  /// Tokens per sample that the stage is prepared for.
  [[nodiscard]] Index context() const { return workspace_.context(); }

  /// The parameters and gradients that this rank keeps; the map says what lies where in the region they are parts of.
  [[nodiscard]] Store& store() { return store_; }
  [[nodiscard]] const Store& store() const { return store_; }
  [[nodiscard]] std::span<T> parameters() { return store_.parameters(); }
  [[nodiscard]] std::span<G> gradients() { return store_.gradients(); }
  [[nodiscard]] const std::vector<LocalParameter>& map() const { return store_.map(); }

  /// Makes room for micro-batches of up to `rows` rows, `slots` of them in flight, and for a local batch of
  /// `local_rows` rows. Allocates only where there is not enough.
  [[gnu::cold]] void reserve(Index rows, int slots, Index local_rows) {
    rows = std::max(rows, rows_);
    slots = std::max(slots, slots_);
    local_rows = std::max(local_rows, local_rows_);
    if (rows == rows_ && slots == slots_ && local_rows == local_rows_) return;
    activations_ = {};
    tokens_ = {};
    activations_ =
        device_.allocate(slots * plan().slot().bytes(plan().row_capacity(rows), plan().shard_capacity(rows)));
    tokens_ = device_.allocate(plan().token_bytes(local_rows), Contents::zero);
    rows_ = rows;
    slots_ = slots;
    local_rows_ = local_rows;
  }
  [[nodiscard]] int slots() const { return slots_; }
  /// Bytes of the arenas; logits are a part of the slots of activations.
  [[nodiscard]] MemoryPlan allocated() const {
    MemoryPlan bytes = store_.allocated();
    bytes.logits = slots_ * plan().logits().bytes(plan().row_capacity(rows_), plan().shard_capacity(rows_));
    bytes.activations = activations_.bytes() - bytes.logits;
    bytes.tokens = tokens_.bytes();
    return bytes;
  }

  /// Token ids of the local batch (first stage of a token model), its features (first stage of others), and its
  /// targets (last stage); empty elsewhere.
  [[nodiscard]] std::span<std::int32_t> tokens() {
    if (!first() || !Lowered::takes_tokens) return {};
    return tokens_.template elements<std::int32_t>(0, local_rows_);
  }
  [[nodiscard]] std::span<T> features() {
    if (!first() || Lowered::takes_tokens) return {};
    return tokens_.template elements<T>(0, local_rows_ * Lowered::input_width);
  }
  [[nodiscard]] std::span<std::int32_t> targets() {
    if (!last()) return {};
    const Index before = tokens_.bytes() - local_rows_ * Index{4};
    return tokens_.template elements<std::int32_t>(before, local_rows_);
  }

  /// A micro-batch of `rows` rows that begins at row `local_row` of the local batch and `first_row` of the global one.
  [[nodiscard]] MicroBatch<Device> micro_batch(Index local_row, Index first_row, Index rows, bool training,
                                               std::uint64_t step) {
    MicroBatch<Device> batch{.device = &device_,
                             .first_row = first_row,
                             .rows = rows,
                             .shard = even_share(rows, Lowered::tensor.degree, tensor_rank_),
                             .context = context(),
                             .row_capacity = plan().row_capacity(rows_),
                             .shard_capacity = plan().shard_capacity(rows_),
                             .tensor_rank = tensor_rank_,
                             .training = training,
                             .seed = seed_,
                             .step = step};
    if (first() && Lowered::takes_tokens)
      batch.tokens = tokens().subspan(static_cast<std::size_t>(local_row), static_cast<std::size_t>(batch.rows));
    return batch;
  }

  // Messages of a slot.
  [[nodiscard]] Matrix<T> input(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan().input(), plan().units().begin, true, batch, slot);
  }
  [[nodiscard]] Matrix<T> input_gradient(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan().input_gradient(), plan().units().begin, true, batch, slot);
  }
  [[nodiscard]] Matrix<T> output_gradient(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan().output_gradient(), plan().units().end - 1, false, batch, slot);
  }
  /// The output of the stage's last unit: the logits, on the last stage.
  [[nodiscard]] Matrix<T> output(const MicroBatch<Device>& batch, int slot) {
    Matrix<T> result;
    const auto unit = plan().units().end - 1;
    visit_unit(unit, [&]<int E>(std::integral_constant<int, E>) {
      result = Lowered::template UnitOf<E>::output(batch, memory_of(unit, slot, batch));
    });
    return result;
  }

  /// Runs the units, but for one that runs together with the loss.
  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  void forward(const MicroBatch<Device>& batch, int slot, Index local_row, TensorCommunicator& communicator,
               Access& access) {
    const T* value = stage_input(batch, slot, local_row);
    access.begin(Pass::forward, units_without_loss());
    for_units<false>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      Memory memory = memory_of(unit, slot, batch);
      memory.input = value;
      access.enter(unit, memory);
      U::forward(batch, memory, communicator);
      access.leave(unit);
      value = U::output(batch, memory).data();
    });
  }

  /// Runs the backward pass from the gradient `incoming`, which it overwrites. The gradient of the stage's input is
  /// left in `input_gradient`. Where the schedule splits the backward pass, this is its first half.
  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  void backward(const MicroBatch<Device>& batch, int slot, Index local_row, Matrix<T> incoming,
                TensorCommunicator& communicator, Access& access) {
    access.begin(Pass::backward, plan().units());
    backward_units(batch, slot, local_row, incoming, workspace_.gradient_pool().back(), communicator, access);
  }
  /// The same from the loss, where it runs together with the last unit, in chunks of rows: returns it, and begins with
  /// `scale` times the gradient of its sum.
  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  LossSum backward_from_loss(const MicroBatch<Device>& batch, int slot, Index local_row, double scale,
                             TensorCommunicator& communicator, Access& access) {
    access.begin(Pass::backward, plan().units());
    auto pass = enter_loss(batch, slot, local_row, communicator, access);
    const Matrix<T> gradient(reinterpret_cast<T*>(workspace_.gradient_pool().back()),
                             splits_rows(Split::element.entering) ? batch.shard.size() : batch.rows,
                             Split::element.entering_width);
    LossSum sum;
    for (Index chunk = 0; chunk < pass.chunks(); ++chunk) sum += pass.train(chunk, scale, gradient);
    access.leave(loss_unit().begin);
    backward_units(batch, slot, local_row, gradient, nullptr, communicator, access);
    return sum;
  }

  /// The second half of a split backward pass: the gradients of parameters.
  template <ParameterAccess<Memory> Access>
  void backward_weights(const MicroBatch<Device>& batch, int slot, Index local_row, Access& access) {
    access.begin(Pass::backward_weights, units_without_loss());
    if (Split::apart && last()) access.complete(loss_unit().begin);
    for_units<true>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      Memory memory = memory_of(unit, slot, batch);
      memory.input = input_of(unit, batch, slot, local_row);
      access.enter(unit, memory);
      U::backward_weights(batch, memory);
      access.leave(unit);
    });
  }

  /// The last unit's passes over a micro-batch, together with the loss. The unit is then entered, and to be left.
  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  [[nodiscard]] auto enter_loss(const MicroBatch<Device>& batch, int slot, Index local_row,
                                TensorCommunicator& communicator, Access& access) {
    const Index unit = loss_unit().begin;
    Memory memory = memory_of(unit, slot, batch);
    memory.input = input_of(unit, batch, slot, local_row);
    access.enter(unit, memory);
    const Index rows = Split::largest_chunk(rows_);
    return LossPass<Lowered, T, G, Device, TensorCommunicator>(batch, memory, targets_of(batch, local_row),
                                                               workspace_.loss_chunk(), plan().row_capacity(rows),
                                                               plan().shard_capacity(rows), communicator);
  }
  /// The loss of a micro-batch of an evaluation, where it runs together with the last unit.
  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  [[nodiscard]] LossSum loss_in_chunks(const MicroBatch<Device>& batch, int slot, Index local_row,
                                       TensorCommunicator& communicator, Access& access) {
    access.begin(Pass::forward, loss_unit());
    auto pass = enter_loss(batch, slot, local_row, communicator, access);
    LossSum sum;
    for (Index chunk = 0; chunk < pass.chunks(); ++chunk) sum += pass.forward(chunk).forward();
    access.leave(loss_unit().begin);
    return sum;
  }
  /// The unit that runs together with the loss, on the last stage.
  [[nodiscard]] Range loss_unit() const { return {plan().units().end - 1, plan().units().end}; }

  /// The loss of a micro-batch whose logits are there.
  template <class TensorCommunicator>
  [[nodiscard]] auto loss(const MicroBatch<Device>& batch, int slot, Index local_row,
                          TensorCommunicator& communicator) {
    return typename Loss::template Rows<Device, TensorCommunicator>{
        batch, communicator, output(batch, slot), targets_of(batch, local_row),
        slot_memory(slot, batch) + plan().statistics().bytes(batch.row_capacity, batch.shard_capacity)};
  }

 private:
  using Arena = typename Device::Arena;

  template <class TensorCommunicator, ParameterAccess<Memory> Access>
  void backward_units(const MicroBatch<Device>& batch, int slot, Index local_row, Matrix<T> gradient, std::byte* spare,
                      TensorCommunicator& communicator, Access& access) {
    auto& pool = workspace_.gradient_pool();
    for_units<true>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      T* const incoming = gradient.data();
      Memory memory = memory_of(unit, slot, batch);
      memory.input = input_of(unit, batch, slot, local_row);
      memory.incoming_gradient = incoming;
      access.enter(unit, memory);
      if (plan().placement(unit).recomputed) U::forward(batch, memory, communicator);
      U::backward(batch, memory, communicator);
      access.leave(unit);
      gradient = U::input_gradient(batch, memory);
      if constexpr (U::plan.outgoing_gradient >= 0) {
        // The slot now in use leaves the pool; the one that the incoming gradient lay in takes its place.
        auto& entry = pool[static_cast<std::size_t>(U::plan.outgoing_gradient)];
        entry = spare != nullptr ? std::exchange(spare, nullptr) : reinterpret_cast<std::byte*>(incoming);
      }
    });
    workspace_.restore_pool();
    if (!first()) device_.copy(std::span<const T>(gradient.flat()), input_gradient(batch, slot).flat());
  }

  [[nodiscard]] Range units_without_loss() const {
    Range units = plan().units();
    if (Split::apart && last()) --units.end;
    return units;
  }
  [[nodiscard]] std::span<const std::int32_t> targets_of(const MicroBatch<Device>& batch, Index local_row) {
    return targets().subspan(static_cast<std::size_t>(local_row), static_cast<std::size_t>(batch.rows));
  }
  // Calls f(integral_constant<element>, unit) for the stage's units in order, or in reverse, but for one that runs
  // together with the loss.
  template <bool Reverse, class F>
  void for_units(F&& f) const {
    constexpr int elements = Lowered::elements - (Split::apart ? 1 : 0);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (for_units_of<Reverse ? elements - 1 - static_cast<int>(I) : static_cast<int>(I), Reverse>(f), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
  }
  template <int E, bool Reverse, class F>
  void for_units_of(F& f) const {
    constexpr ElementTable element = Lowered::table[E];
    Index begin = element.first_unit;
    Index end = element.first_unit + element.count;
    if constexpr (!WholeModel) {
      begin = std::max(begin, plan().units().begin);
      end = std::min(end, plan().units().end);
    }
    if constexpr (Reverse)
      for (Index u = end - 1; u >= begin; --u) f(std::integral_constant<int, E>{}, u);
    else
      for (Index u = begin; u < end; ++u) f(std::integral_constant<int, E>{}, u);
  }
  template <class F>
  void visit_unit(Index unit, F&& f) const {
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      ((Lowered::element_of(static_cast<int>(unit)) == static_cast<int>(E)
            ? f(std::integral_constant<int, static_cast<int>(E)>{})
            : void()),
       ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
  }

  [[nodiscard]] std::byte* slot_memory(int slot, const MicroBatch<Device>& batch) {
    return activations_.data() + slot * plan().slot().bytes(batch.row_capacity, batch.shard_capacity);
  }
  [[nodiscard]] Matrix<T> boundary(Extent offset, Index unit, bool entering, const MicroBatch<Device>& batch,
                                   int slot) {
    const ElementTable& element = Lowered::table[static_cast<std::size_t>(Lowered::element_of(static_cast<int>(unit)))];
    const Layout layout = entering ? element.entering : element.leaving;
    return {reinterpret_cast<T*>(slot_memory(slot, batch) + offset.bytes(batch.row_capacity, batch.shard_capacity)),
            splits_rows(layout) ? batch.shard.size() : batch.rows,
            entering ? element.entering_width : element.leaving_width};
  }
  [[nodiscard]] const T* stage_input(const MicroBatch<Device>& batch, int slot, Index local_row) {
    if (!first()) return input(batch, slot).data();
    if constexpr (Lowered::takes_tokens) return nullptr;
    const Index row = local_row + (splits_rows(Lowered::table[0].entering) ? batch.shard.begin : 0);
    return features().data() + row * Lowered::input_width;
  }
  [[nodiscard]] const T* input_of(Index unit, const MicroBatch<Device>& batch, int slot, Index local_row) {
    return unit == plan().units().begin ? stage_input(batch, slot, local_row) : output_of(unit - 1, slot, batch);
  }
  [[nodiscard, gnu::noinline]] const T* output_of(Index unit, int slot, const MicroBatch<Device>& batch) {
    const T* data = nullptr;
    visit_unit(unit, [&]<int E>(std::integral_constant<int, E>) {
      data = Lowered::template UnitOf<E>::output(batch, memory_of(unit, slot, batch)).data();
    });
    return data;
  }
  // All but the unit's input, and its parameters and gradients, which whoever lends them fills in.
  [[nodiscard, gnu::noinline]] Memory memory_of(Index unit, int slot, const MicroBatch<Device>& batch) {
    const UnitPlacement& place = plan().placement(unit);
    const auto in_slot = [&](Extent offset) {
      return slot_memory(slot, batch) + offset.bytes(batch.row_capacity, batch.shard_capacity);
    };
    Memory memory;
    memory.constants = workspace_.constants(Lowered::element_of(static_cast<int>(unit)));
    memory.output = in_slot(place.output);
    memory.saved = place.recomputed ? workspace_.recomputed() : in_slot(place.saved);
    memory.deferred = in_slot(place.deferred);
    memory.transient = workspace_.transient();
    memory.exchange = workspace_.exchange();
    memory.gradient_pool = workspace_.gradient_pool().data();
    memory.name_hash = name_hashes_[static_cast<std::size_t>(unit - plan().units().begin)];
    return memory;
  }

  Device& device_;
  Shared& workspace_;
  Store store_;
  int tensor_rank_;
  std::uint64_t seed_;
  Arena activations_{};
  Arena tokens_{};
  std::vector<std::uint64_t> name_hashes_{};
  Index rows_ = 0;
  int slots_ = 0;
  Index local_rows_ = 0;
};

}  // namespace dtrain::parallel
