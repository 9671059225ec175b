// A pipeline stage on one rank: its memory, and the forward and backward pass of one micro-batch.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dtrain/parallel/parameter_map.hpp"
#include "dtrain/parallel/stage_plan.hpp"

namespace dtrain::parallel {

/// `WholeModel`: the stage is all of the model, which the compiler then knows.
template <class Lowered, NumberFormat Format, class Device, bool WholeModel>
class Stage {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;
  using Loss = CrossEntropy<Lowered, T>;

 public:
  Stage(Device& device, Range units, int tensor_rank, std::uint64_t seed)
      : device_(device), plan_(units, Lowered::tensor.degree), tensor_rank_(tensor_rank), seed_(seed) {
    parameters_ = device_.allocate(plan_.parameter_size() * static_cast<Index>(sizeof(T)), Contents::zero);
    gradients_ = device_.allocate(plan_.parameter_size() * static_cast<Index>(sizeof(G)), Contents::zero);
    map_parameters();
    for (const LocalParameter& parameter : map_) initialize(parameter, seed, parameters());
    for (Index u = units.begin; u < units.end; ++u) name_hashes_.push_back(hash_name(Lowered::unit_prefix(int(u))));
  }

  [[nodiscard]] const StagePlan<Lowered, Format>& plan() const { return plan_; }
  [[nodiscard]] bool first() const { return WholeModel || plan_.first(); }
  [[nodiscard]] bool last() const { return WholeModel || plan_.last(); }
  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] int tensor_rank() const { return tensor_rank_; }
  /// Tokens per sample that the stage is prepared for.
  [[nodiscard]] Index context() const { return context_; }

  /// The stage's parameters and gradients, as one region each; the map says what lies where.
  [[nodiscard]] std::span<T> parameters() { return parameters_.template elements<T>(0, plan_.parameter_size()); }
  [[nodiscard]] std::span<G> gradients() { return gradients_.template elements<G>(0, plan_.parameter_size()); }
  [[nodiscard]] const std::vector<LocalParameter>& map() const { return map_; }

  /// Makes room for micro-batches of up to `rows` rows of samples of `context`, `slots` of them in flight, and for a
  /// local batch of `local_rows` rows. Allocates only where there is not enough.
  [[gnu::cold]] void reserve(Index rows, Index context, int slots, Index local_rows) {
    if (context != context_) prepare_constants(context);
    rows = std::max(rows, rows_);
    slots = std::max(slots, slots_);
    local_rows = std::max(local_rows, local_rows_);
    if (rows == rows_ && slots == slots_ && local_rows == local_rows_) return;
    const MemoryPlan bytes = plan_.memory(rows, slots, local_rows, constants_size());
    activations_ = {};
    transient_ = {};
    tokens_ = {};
    activations_ = device_.allocate(bytes.activations);
    transient_ = device_.allocate(bytes.transient);
    tokens_ = device_.allocate(bytes.tokens, Contents::zero);
    rows_ = rows;
    slots_ = slots;
    local_rows_ = local_rows;
    const Index full = plan_.row_capacity(rows);
    const Index shard = plan_.shard_capacity(rows);
    std::byte* at = transient_.data() + plan_.transient().bytes(full, shard);
    exchange_ = at;
    at += plan_.exchange().bytes(full, shard);
    pool_.clear();
    for (int s = 0; s < plan_.gradient_slots(); ++s) pool_.push_back(at + s * plan_.gradient_slot().bytes(full, shard));
  }
  [[nodiscard]] MemoryPlan memory() const { return plan_.memory(rows_, slots_, local_rows_, constants_size()); }
  /// Bytes of the arenas, to be compared with `memory().total()`.
  [[nodiscard]] Index allocated_bytes() const {
    return parameters_.bytes() + gradients_.bytes() + activations_.bytes() + transient_.bytes() + tokens_.bytes() +
           constants_.bytes();
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
                             .context = context_,
                             .row_capacity = plan_.row_capacity(rows_),
                             .shard_capacity = plan_.shard_capacity(rows_),
                             .tensor_rank = tensor_rank_,
                             .training = training,
                             .seed = seed_,
                             .step = step};
    if (first() && Lowered::takes_tokens)
      batch.tokens = tokens().subspan(static_cast<std::size_t>(local_row), static_cast<std::size_t>(rows));
    return batch;
  }

  // Messages of a slot.
  [[nodiscard]] Matrix<T> input(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan_.input(), plan_.units().begin, true, batch, slot);
  }
  [[nodiscard]] Matrix<T> input_gradient(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan_.input_gradient(), plan_.units().begin, true, batch, slot);
  }
  [[nodiscard]] Matrix<T> output_gradient(const MicroBatch<Device>& batch, int slot) {
    return boundary(plan_.output_gradient(), plan_.units().end - 1, false, batch, slot);
  }
  /// The output of the stage's last unit: the logits, on the last stage.
  [[nodiscard]] Matrix<T> output(const MicroBatch<Device>& batch, int slot) {
    Matrix<T> result;
    const auto unit = plan_.units().end - 1;
    visit_unit(unit, [&]<int E>(std::integral_constant<int, E>) {
      result = Lowered::template UnitOf<E>::output(batch, memory_of(unit, slot, batch));
    });
    return result;
  }

  template <class TensorCommunicator>
  void forward(const MicroBatch<Device>& batch, int slot, Index local_row, TensorCommunicator& communicator) {
    const T* value = stage_input(batch, slot, local_row);
    for_units<false>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      UnitMemory<T, G> memory = memory_of(unit, slot, batch);
      memory.input = value;
      U::forward(batch, memory, communicator);
      value = U::output(batch, memory).data();
    });
  }

  /// Runs the backward pass from the gradient at `incoming`, which it overwrites; `done(unit)` is called when all
  /// gradients of a unit have been added. The gradient of the stage's input is left in `input_gradient`.
  template <class TensorCommunicator, class Done>
  void backward(const MicroBatch<Device>& batch, int slot, Index local_row, T* incoming,
                TensorCommunicator& communicator, Done&& done) {
    std::byte* spare = pool_.back();
    Matrix<T> gradient;
    for_units<true>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      UnitMemory<T, G> memory = memory_of(unit, slot, batch);
      memory.input =
          unit == plan_.units().begin ? stage_input(batch, slot, local_row) : output_of(unit - 1, slot, batch);
      memory.incoming_gradient = incoming;
      U::backward(batch, memory, communicator);
      gradient = U::input_gradient(batch, memory);
      if constexpr (U::plan.outgoing_gradient >= 0) {
        // The slot now in use leaves the pool; the one that the incoming gradient lay in takes its place.
        auto& entry = pool_[static_cast<std::size_t>(U::plan.outgoing_gradient)];
        entry = spare != nullptr ? std::exchange(spare, nullptr) : reinterpret_cast<std::byte*>(incoming);
      }
      incoming = gradient.data();
      done(unit);
    });
    restore_pool();
    if (!first()) device_.copy(std::span<const T>(gradient.flat()), input_gradient(batch, slot).flat());
  }

  /// The loss of a micro-batch whose logits are there.
  template <class TensorCommunicator>
  [[nodiscard]] auto loss(const MicroBatch<Device>& batch, int slot, Index local_row,
                          TensorCommunicator& communicator) {
    return typename Loss::template Rows<Device, TensorCommunicator>{
        batch, communicator, output(batch, slot),
        targets().subspan(static_cast<std::size_t>(local_row), static_cast<std::size_t>(batch.rows)),
        slot_memory(slot, batch) + plan_.statistics().bytes(batch.row_capacity, batch.shard_capacity)};
  }

 private:
  using Arena = typename Device::Arena;

  // Calls f(integral_constant<element>, unit) for the stage's units in order, or in reverse.
  template <bool Reverse, class F>
  void for_units(F&& f) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (for_units_of<Reverse ? Lowered::elements - 1 - static_cast<int>(I) : static_cast<int>(I), Reverse>(f), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
  }
  template <int E, bool Reverse, class F>
  void for_units_of(F& f) const {
    constexpr ElementTable element = Lowered::table[E];
    Index begin = element.first_unit;
    Index end = element.first_unit + element.count;
    if constexpr (!WholeModel) {
      begin = std::max(begin, plan_.units().begin);
      end = std::min(end, plan_.units().end);
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
    return activations_.data() + slot * plan_.slot().bytes(batch.row_capacity, batch.shard_capacity);
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
  [[nodiscard]] const T* output_of(Index unit, int slot, const MicroBatch<Device>& batch) {
    const T* data = nullptr;
    visit_unit(unit, [&]<int E>(std::integral_constant<int, E>) {
      data = Lowered::template UnitOf<E>::output(batch, memory_of(unit, slot, batch)).data();
    });
    return data;
  }
  [[nodiscard]] UnitMemory<T, G> memory_of(Index unit, int slot, const MicroBatch<Device>& batch) {
    const UnitPlacement& place = plan_.placement(unit);
    const int element = Lowered::element_of(static_cast<int>(unit));
    UnitMemory<T, G> memory;
    memory.parameters = parameters().data() + place.parameters;
    memory.gradients = gradients().data() + place.parameters;
    for (const Tie& tie : Lowered::ties)
      if (tie.user == element) {
        memory.tied_parameter = parameters().data() + plan_.tied_offset(tie);
        memory.tied_gradient = gradients().data() + plan_.tied_offset(tie);
      }
    memory.constants = reinterpret_cast<const Accumulator<T>*>(constants_.data()) +
                       constants_offset_[static_cast<std::size_t>(element)];
    const auto in_slot = [&](Extent offset) {
      return slot_memory(slot, batch) + offset.bytes(batch.row_capacity, batch.shard_capacity);
    };
    memory.output = in_slot(place.output);
    memory.saved = in_slot(place.saved);
    memory.deferred = in_slot(place.deferred);
    memory.transient = transient_.data();
    memory.exchange = exchange_;
    memory.gradient_pool = pool_.data();
    memory.name_hash = name_hashes_[static_cast<std::size_t>(unit - plan_.units().begin)];
    return memory;
  }
  // The pool's slots are all free between backward passes; their order is of no importance, but all must be in it.
  void restore_pool() {
    const Index bytes = plan_.gradient_slot().bytes(plan_.row_capacity(rows_), plan_.shard_capacity(rows_));
    for (int s = 0; s < plan_.gradient_slots(); ++s)
      pool_[static_cast<std::size_t>(s)] =
          exchange_ + plan_.exchange().bytes(plan_.row_capacity(rows_), plan_.shard_capacity(rows_)) + s * bytes;
  }

  [[gnu::cold]] void prepare_constants(Index context) {
    constants_offset_ = Lowered::constants_offsets(context);
    constants_ = {};
    constants_ = device_.allocate(constants_size() * static_cast<Index>(sizeof(Accumulator<T>)), Contents::zero);
    for_elements([&]<int E>(std::integral_constant<int, E>) {
      using U = typename Lowered::template UnitOf<E>;
      U::fill_constants(
          context, constants_.template elements<Accumulator<T>>(
                       constants_offset_[E] * static_cast<Index>(sizeof(Accumulator<T>)), U::constants_size(context)));
    });
    context_ = context;
  }
  [[nodiscard]] Index constants_size() const { return constants_offset_.back(); }
  template <class F>
  void for_elements(F&& f) const {
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (f(std::integral_constant<int, static_cast<int>(E)>{}), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
  }

  [[gnu::cold]] void map_parameters() {
    for_units<false>([&]<int E>(std::integral_constant<int, E>, Index unit) {
      using U = typename Lowered::template UnitOf<E>;
      for (const UnitParameter& described : U::parameters) {
        if (described.tied()) continue;
        map_.push_back(locate_parameter(described.parameter, name_of<U>(described, static_cast<int>(unit)), unit,
                                        plan_.placement(unit).parameters + described.offset, Lowered::tensor.degree,
                                        tensor_rank_));
      }
    });
    for_elements([&]<int E>(std::integral_constant<int, E>) {
      for (const Tie& tie : Lowered::ties)
        if (tie.owner == E && plan_.holds_element(tie.user) && !plan_.holds_element(E)) map_copy<E>(tie);
    });
  }
  // The copy starts as the owner does, since the start is a function of the name, and is counted by the owner alone.
  template <int Owner>
  void map_copy(const Tie& tie) {
    using U = typename Lowered::template UnitOf<Owner>;
    for (const UnitParameter& described : U::parameters) {
      if (described.tied() || described.offset != tie.offset) continue;
      LocalParameter copy = locate_parameter(
          described.parameter, name_of<U>(described, Lowered::table[Owner].first_unit),
          Lowered::table[Owner].first_unit, plan_.tied_offset(tie), Lowered::tensor.degree, tensor_rank_);
      copy.tied_copy = true;
      for (Segment& segment : copy.segments) segment.counted = false;
      map_.push_back(std::move(copy));
    }
  }
  template <class U>
  static std::string name_of(const UnitParameter& described, int unit) {
    return whole_name(Lowered::unit_prefix(unit), U::paths[static_cast<std::size_t>(described.node)],
                      described.parameter.name);
  }

  Device& device_;
  StagePlan<Lowered, Format> plan_;
  int tensor_rank_;
  std::uint64_t seed_;
  Arena parameters_{};
  Arena gradients_{};
  Arena activations_{};
  Arena transient_{};
  Arena tokens_{};
  Arena constants_{};
  std::byte* exchange_ = nullptr;
  std::vector<std::byte*> pool_{};
  std::vector<LocalParameter> map_{};
  std::vector<std::uint64_t> name_hashes_{};
  std::array<Index, Lowered::elements + 1> constants_offset_{};
  Index rows_ = 0;
  Index context_ = 0;
  int slots_ = 0;
  Index local_rows_ = 0;
};

}  // namespace dtrain::parallel
