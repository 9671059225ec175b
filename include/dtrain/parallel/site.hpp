// What a layer sees while it runs: its parameters, its saved values, and its place in the global batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dtrain/core/random.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/nn/layer.hpp"

namespace dtrain::parallel {

/// The rows a layer works on. `first` is the index of the first one in the global batch, counted in tokens.
struct Rows {
  Index count = 0;
  Index first = 0;
  Index context = 1;
};

/// One micro-batch as one rank sees it. Rows are tokens, sample by sample.
template <class Device>
struct MicroBatch {
  Device* device = nullptr;
  std::span<const std::int32_t> tokens{};  ///< [rows], on the stage that embeds them
  Index first_row = 0;                     ///< of this micro-batch in the global batch
  Index rows = 0;                          ///< of the whole micro-batch
  Range shard{};                           ///< the rows this rank holds of a sequence-parallel stream
  Index context = 1;                       ///< rows per sample
  Index row_capacity = 0;                  ///< rows the buffers are planned for
  Index shard_capacity = 0;                ///< the same for the sequence shard
  int tensor_rank = 0;
  bool training = true;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

/// The memory of one unit for one micro-batch. `T` is the type of parameters and activations, `G` that of the
/// gradients of parameters.
template <Scalar T, Scalar G>
struct UnitMemory {
  const T* parameters = nullptr;
  G* gradients = nullptr;
  const T* tied_parameter = nullptr;
  G* tied_gradient = nullptr;
  const Accumulator<T>* constants = nullptr;
  const T* input = nullptr;        ///< the unit's input
  std::byte* output = nullptr;     ///< the unit's output
  std::byte* saved = nullptr;      ///< kept from forward to backward
  std::byte* deferred = nullptr;   ///< kept from the input's to the weights' backward pass
  std::byte* transient = nullptr;  ///< shared by all units in the forward pass
  std::byte* exchange = nullptr;   ///< room to gather features in
  T* incoming_gradient = nullptr;
  std::byte* const* gradient_pool = nullptr;
  std::uint64_t name_hash = 0;  ///< of the unit's name with its index, as far as the node's path
};

/// The site of node `I` of a unit; see `nn::Layer` for what layers may ask of it.
template <class Unit, int I, Scalar T, Scalar G, class Device>
class Site {
 public:
  static constexpr int degree = Unit::tensor.degree;
  static constexpr nn::LayoutRule rule = Unit::rules[I].rule;

  Site(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory) : batch_(batch), memory_(memory) {}

  [[nodiscard]] Device& device() const { return *batch_.device; }
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return batch_.tokens; }
  [[nodiscard]] bool training() const { return batch_.training; }
  [[nodiscard]] Rows rows() const {
    if constexpr (Unit::rules[I].splits_rows())
      return {batch_.shard.size(), batch_.first_row + batch_.shard.begin, batch_.context};
    return {batch_.rows, batch_.first_row, batch_.context};
  }
  /// This layer's random numbers of this step.
  [[nodiscard]] RandomStream random() const {
    return {batch_.seed, hash_name(Unit::template path<I>, memory_.name_hash), batch_.step};
  }

  /// The rank's shard of parameter `K`: [local rows, local columns].
  template <int K>
  [[nodiscard]] Matrix<const T> parameter() const {
    constexpr auto& described = Unit::parameters[Unit::first_parameter[I] + K];
    const T* data = described.tied() ? memory_.tied_parameter : memory_.parameters + described.offset;
    return {data, described.parameter.local_rows(degree), described.parameter.local_columns(degree)};
  }
  /// Its gradient, which layers add to.
  template <int K>
  [[nodiscard]] Matrix<G> gradient() const {
    constexpr auto& described = Unit::parameters[Unit::first_parameter[I] + K];
    G* data = described.tied() ? memory_.tied_gradient : memory_.gradients + described.offset;
    return {data, described.parameter.local_rows(degree), described.parameter.local_columns(degree)};
  }
  /// The rows of parameter `K` that this rank holds, padding included (vocabularies).
  template <int K>
  [[nodiscard]] Range parameter_range() const {
    constexpr auto& described = Unit::parameters[Unit::first_parameter[I] + K];
    constexpr bool cut = described.parameter.cut == nn::Cut::rows;
    return described.parameter.rows.parts[0].unit_range(cut ? degree : 1, cut ? batch_.tensor_rank : 0);
  }
  /// The units of a width that this rank holds (heads).
  [[nodiscard]] Range unit_range(const nn::FeaturePart& part) const {
    return part.unit_range(degree, degree > 1 ? batch_.tensor_rank : 0);
  }

  /// The layer's input, in the backward pass of layers that save it.
  [[nodiscard]] Matrix<const T> input() const {
    return Unit::template value<T>(Unit::plan.nodes[I].in, Unit::rules[I].in_width, Unit::rules[I].rule.in, batch_,
                                   memory_);
  }
  /// The layer's output, likewise.
  [[nodiscard]] Matrix<const T> output() const {
    return Unit::template value<T>(Unit::plan.nodes[I].out, Unit::rules[I].out_width, Unit::rules[I].rule.out, batch_,
                                   memory_);
  }
  /// `saved_per_row` elements for each of `rows()`.
  [[nodiscard]] Accumulator<T>* saved() const {
    return reinterpret_cast<Accumulator<T>*>(
        memory_.saved + Unit::plan.nodes[I].statistics.bytes(batch_.row_capacity, batch_.shard_capacity));
  }
  [[nodiscard]] std::span<const Accumulator<T>> constants() const {
    const auto offset = Unit::template constants_before<I>(batch_.context);
    const auto count = nn::constants_of<typename Unit::template Layer<I>>(batch_.context, Unit::tensor);
    return {memory_.constants + offset, static_cast<std::size_t>(count)};
  }

 private:
  const MicroBatch<Device>& batch_;
  const UnitMemory<T, G>& memory_;
};

}  // namespace dtrain::parallel
