// Runs one layer, or a few composed, on one rank, with memory whose contents the caller chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/comm/self.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/parameter_map.hpp"
#include "dtrain/parallel/stage_plan.hpp"
#include "dtrain/parallel/strategy.hpp"

namespace dtrain::testing {

/// The shape of a run: `samples` sequences of `context` rows; rows of a layer that knows no sequences are their
/// product.
struct UnitShape {
  Index samples = 2;
  Index context = 4;
  std::uint64_t seed = 1;
  bool training = true;
  [[nodiscard]] constexpr Index rows() const { return samples * context; }
};

/// `L` in one process, as the lowering would run it: `Composed` is `L`, or a `Sequence` that holds it.
template <class Composed, NumberFormat Format = double>
class UnitRun {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;

 public:
  using Lowered = parallel::LoweredModel<nn::Sequence<Composed>, TensorParallel<1>, T>;
  using Unit = typename Lowered::template UnitOf<0>;
  static_assert(Lowered::elements == 1 && Lowered::check());
  static_assert(Unit::tied_parameter < 0, "dtrain: a layer that uses another's parameter cannot be run alone");

  /// Parameters start as they would in a model of this seed, with a little noise, so that none is 0 or 1 throughout.
  UnitRun(Host& device, const UnitShape& shape)
      : device_(device),
        shape_(shape),
        parameters_(static_cast<std::size_t>(Unit::parameter_size)),
        gradients_(parameters_.size()),
        constants_(static_cast<std::size_t>(Unit::constants_size(shape.context))) {
    for (const parallel::UnitParameter& described : Unit::parameters) {
      std::string name =
          parallel::whole_name("", Unit::paths[static_cast<std::size_t>(described.node)], described.parameter.name);
      map_.push_back(parallel::locate_parameter(described.parameter, std::move(name), 0, described.offset, 1, 0));
      parallel::initialize(map_.back(), shape.seed, std::span(parameters_));
      const RandomStream noise(shape.seed, hash_name("noise", hash_name(map_.back().name)));
      for (Index i = 0; i < map_.back().size(); ++i) {
        T& parameter = parameters_[static_cast<std::size_t>(map_.back().offset + i)];
        parameter = number(static_cast<double>(parameter) + 0.1 * noise.normal(static_cast<std::uint64_t>(i)));
      }
    }
    Unit::fill_constants(shape.context, std::span(constants_));
    resize(output_, Unit::plan.output);
    resize(saved_, Unit::plan.saved);
    resize(transient_, Unit::plan.transient);
    const parallel::Extent slot =
        larger(Unit::plan.gradient_slot, parallel::Extent{Unit::leaving_width * static_cast<Index>(sizeof(T)), 0});
    pool_.resize(static_cast<std::size_t>(Unit::plan.gradient_slots) + 1);
    for (std::vector<std::byte>& memory : pool_) resize(memory, slot);
    for (std::vector<std::byte>& memory : pool_) pool_places_.push_back(memory.data());
    if (Unit::takes_tokens) draw_tokens();
    input_.resize(static_cast<std::size_t>(shape.rows() * Unit::entering_width));
    const RandomStream drawn(shape.seed, hash_name("input"));
    for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = number(drawn.normal(i));
  }

  [[nodiscard]] std::span<T> input() { return input_; }
  [[nodiscard]] std::span<T> parameters() { return parameters_; }
  [[nodiscard]] std::span<G> gradients() { return gradients_; }
  [[nodiscard]] const std::vector<parallel::LocalParameter>& map() const { return map_; }
  [[nodiscard]] Index outputs() const { return shape_.rows() * Unit::leaving_width; }

  /// Fills all memory that a pass may not read before it has written it: with quiet NaNs, or with zeros.
  void fill_working_memory(bool poison) {
    fill(output_, poison);
    fill(saved_, poison);
    fill(transient_, poison);
    for (std::vector<std::byte>& memory : pool_) fill(memory, poison);
  }
  /// Fills what the backward pass may not read: everything but what is saved.
  void poison_for_backward() {
    fill(transient_, true);
    for (std::vector<std::byte>& memory : pool_) fill(memory, true);
  }

  /// The output, [rows, leaving width].
  std::vector<T> forward() {
    const auto batch = micro_batch();
    Unit::forward(batch, memory(), self_);
    const auto output = Unit::output(batch, memory()).flat();
    return {output.begin(), output.end()};
  }
  /// The gradient of the input, [rows, entering width], from that of the output; adds to `gradients()`.
  std::vector<T> backward(std::span<const T> output_gradient) {
    const auto batch = micro_batch();
    std::copy(output_gradient.begin(), output_gradient.end(), reinterpret_cast<T*>(pool_.back().data()));
    Unit::backward(batch, memory(), self_);
    if constexpr (Unit::takes_tokens) {
      return {};
    } else {
      const auto gradient = Unit::input_gradient(batch, memory()).flat();
      return {gradient.begin(), gradient.end()};
    }
  }

 private:
  static T number(double value) { return static_cast<T>(static_cast<Accumulator<T>>(value)); }
  [[nodiscard]] Index capacity() const { return round_up(shape_.rows(), parallel::row_multiple); }
  void resize(std::vector<std::byte>& memory, parallel::Extent extent) const {
    memory.resize(static_cast<std::size_t>(extent.bytes(capacity(), capacity())));
  }
  static void fill(std::vector<std::byte>& memory, bool poison) {
    // Eight bytes of ones are a quiet NaN in every floating-point type.
    std::fill(memory.begin(), memory.end(), poison ? std::byte{0xff} : std::byte{0});
  }
  void draw_tokens() {
    if constexpr (Unit::takes_tokens) {
      const RandomStream drawn(shape_.seed, hash_name("tokens"));
      tokens_.resize(static_cast<std::size_t>(shape_.rows()));
      constexpr auto vocabulary = static_cast<std::uint32_t>(Unit::template Layer<0>::vocabulary);
      for (std::size_t i = 0; i < tokens_.size(); ++i)
        tokens_[i] = static_cast<std::int32_t>(drawn.bits(i) % vocabulary);
    }
  }
  [[nodiscard]] parallel::MicroBatch<Host> micro_batch() {
    return {.device = &device_,
            .tokens = tokens_,
            .first_row = 0,
            .rows = shape_.rows(),
            .shard = {0, shape_.rows()},
            .context = shape_.context,
            .row_capacity = capacity(),
            .shard_capacity = capacity(),
            .tensor_rank = 0,
            .training = shape_.training,
            .seed = shape_.seed,
            .step = 0};
  }
  [[nodiscard]] parallel::UnitMemory<T, G> memory() {
    parallel::UnitMemory<T, G> memory;
    memory.parameters = parameters_.data();
    memory.gradients = gradients_.data();
    memory.constants = constants_.data();
    memory.input = input_.data();
    memory.output = output_.data();
    memory.saved = saved_.data();
    memory.transient = transient_.data();
    memory.incoming_gradient = reinterpret_cast<T*>(pool_.back().data());
    memory.gradient_pool = pool_places_.data();
    memory.name_hash = hash_name(Lowered::unit_prefix(0));
    return memory;
  }

  Host& device_;
  UnitShape shape_;
  comm::Self self_{};
  std::vector<T> parameters_;
  std::vector<G> gradients_;
  std::vector<Accumulator<T>> constants_;
  std::vector<std::byte> output_{};
  std::vector<std::byte> saved_{};
  std::vector<std::byte> transient_{};
  std::vector<std::vector<std::byte>> pool_{};
  std::vector<std::byte*> pool_places_{};
  std::vector<parallel::LocalParameter> map_{};
  std::vector<std::int32_t> tokens_{};
  std::vector<T> input_{};
};

}  // namespace dtrain::testing
