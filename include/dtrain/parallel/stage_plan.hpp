// The sizes of one pipeline stage: where its units' parameters and saved values lie, and the bytes of each kind.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/precision.hpp"
#include "dtrain/parallel/batch_shape.hpp"
#include "dtrain/parallel/cross_entropy.hpp"
#include "dtrain/parallel/lowered_model.hpp"

namespace dtrain::parallel {

/// Rows that buffers of a micro-batch are planned for: 32 keep every planned buffer aligned to 64 bytes.
inline constexpr Index row_multiple = 32;

/// Bytes of one rank by kind. What is planned is what is allocated.
struct MemoryPlan {
  Index parameters = 0;
  Index gradients = 0;
  Index activations = 0;  ///< of all micro-batches in flight, with the messages between stages
  Index transient = 0;    ///< shared by all layers: values of the forward pass, gradients of activations
  Index constants = 0;
  Index tokens = 0;  ///< inputs and targets of the local batch

  [[nodiscard]] constexpr Index total() const {
    return parameters + gradients + activations + transient + constants + tokens;
  }
  friend constexpr bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

/// Where one unit of a stage lies.
struct UnitPlacement {
  Index parameters = 0;  ///< in the stage's parameter region, in elements
  Extent output{};       ///< in a slot of activations, as the next two
  Extent saved{};
  Extent deferred{};
};

/// A stage holds the units [units.begin, units.end) of the model.
template <class Lowered, NumberFormat Format>
class StagePlan {
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;

 public:
  constexpr StagePlan(Range units, int tensor_degree) : units_(units), degree_(tensor_degree) {
    Index parameters = 0;
    Extent saved{};
    for (Index u = units.begin; u < units.end; ++u) {
      const ElementTable& element = element_of(u);
      UnitPlacement place{.parameters = parameters, .output = saved};
      place.saved = place.output + element.output;
      place.deferred = place.saved + element.saved;
      placements_.push_back(place);
      parameters += element.parameter_size;
      saved = place.deferred + element.deferred;
      transient_ = larger(transient_, element.transient);
      exchange_ = larger(exchange_, element.exchange);
      gradient_slot_ = larger(gradient_slot_, element.gradient_slot);
      gradient_slots_ = std::max(gradient_slots_, element.gradient_slots + 1);
    }
    owned_parameters_ = parameters;
    for (const Tie& tie : Lowered::ties)
      if (holds_element(tie.user) && !holds_element(tie.owner)) parameters += round_up(tie.size, parameter_alignment);
    parameter_size_ = parameters;
    if (!first()) {
      input_ = saved;
      saved += input_extent();
      input_gradient_ = saved;
      saved += input_extent();
    }
    if (last()) {
      statistics_ = saved;
      saved += CrossEntropy<Lowered, T>::statistics;
    } else {
      output_gradient_ = saved;
      saved += output_extent();
    }
    slot_ = saved;
  }

  [[nodiscard]] constexpr Range units() const { return units_; }
  [[nodiscard]] constexpr bool first() const { return units_.begin == 0; }
  [[nodiscard]] constexpr bool last() const { return units_.end == Lowered::units; }
  [[nodiscard]] constexpr const UnitPlacement& placement(Index unit) const {
    return placements_[static_cast<std::size_t>(unit - units_.begin)];
  }
  /// Elements of the stage's parameter region; the copies of tied parameters lie at its end.
  [[nodiscard]] constexpr Index parameter_size() const { return parameter_size_; }
  [[nodiscard]] constexpr Index owned_parameters() const { return owned_parameters_; }
  /// The regions of the units from last to first, as the backward pass completes their gradients.
  [[nodiscard]] constexpr std::vector<Range> backward_pieces() const {
    std::vector<Range> result;
    Index end = owned_parameters_;
    for (Index unit = units_.end - 1; unit >= units_.begin; --unit) {
      const Index begin = placement(unit).parameters;
      result.push_back({begin, end});
      end = begin;
    }
    return result;
  }
  [[nodiscard]] constexpr bool holds_element(int element) const {
    const Index unit = Lowered::table[static_cast<std::size_t>(element)].first_unit;
    return units_.contains(unit);
  }
  /// Where the parameter of a tie lies on a stage that reads it: with its owner, or in the copy at the end.
  [[nodiscard]] constexpr Index tied_offset(const Tie& wanted) const {
    if (holds_element(wanted.owner))
      return placement(Lowered::table[static_cast<std::size_t>(wanted.owner)].first_unit).parameters + wanted.offset;
    Index at = owned_parameters_;
    for (const Tie& tie : Lowered::ties) {
      if (tie.user == wanted.user) break;
      if (holds_element(tie.user) && !holds_element(tie.owner)) at += round_up(tie.size, parameter_alignment);
    }
    return at;
  }

  // Regions of a slot of activations.
  [[nodiscard]] constexpr Extent slot() const { return slot_; }
  [[nodiscard]] constexpr Extent input() const { return input_; }
  [[nodiscard]] constexpr Extent input_gradient() const { return input_gradient_; }
  [[nodiscard]] constexpr Extent output_gradient() const { return output_gradient_; }
  [[nodiscard]] constexpr Extent statistics() const { return statistics_; }
  [[nodiscard]] constexpr Extent input_extent() const {
    const ElementTable& element = element_of(units_.begin);
    return detail::extent_of<T, T>(element.entering, element.entering_width);
  }
  [[nodiscard]] constexpr Extent output_extent() const {
    const ElementTable& element = element_of(units_.end - 1);
    return detail::extent_of<T, T>(element.leaving, element.leaving_width);
  }
  // Regions shared by all units.
  [[nodiscard]] constexpr Extent transient() const { return transient_; }
  [[nodiscard]] constexpr Extent exchange() const { return exchange_; }
  [[nodiscard]] constexpr Extent gradient_slot() const { return gradient_slot_; }
  [[nodiscard]] constexpr int gradient_slots() const { return gradient_slots_; }

  /// Rows that a slot is planned for, and of these the sequence shard's.
  [[nodiscard]] static constexpr Index row_capacity(Index rows) { return round_up(rows, row_multiple); }
  [[nodiscard]] constexpr Index shard_capacity(Index rows) const {
    return round_up((rows + degree_ - 1) / degree_, row_multiple);
  }

  /// Bytes of this rank for micro-batches of `rows` rows with `slots` of them in flight, `local_rows` rows of the
  /// batch in all, and `constants` elements of constants.
  [[nodiscard]] constexpr MemoryPlan memory(Index rows, int slots, Index local_rows, Index constants) const {
    const Index full = row_capacity(rows);
    const Index shard = shard_capacity(rows);
    const Extent shared = transient_ + exchange_ + static_cast<Index>(gradient_slots_) * gradient_slot_;
    MemoryPlan plan{.parameters = parameter_size_ * static_cast<Index>(sizeof(T)),
                    .gradients = parameter_size_ * static_cast<Index>(sizeof(G)),
                    .activations = slots * slot_.bytes(full, shard),
                    .transient = shared.bytes(full, shard),
                    .constants = constants * static_cast<Index>(sizeof(Accumulator<T>))};
    if (first())
      plan.tokens += local_rows * (Lowered::takes_tokens ? 4 : Lowered::input_width * static_cast<Index>(sizeof(T)));
    if (last()) plan.tokens += local_rows * 4;
    return plan;
  }

 private:
  static constexpr const ElementTable& element_of(Index unit) {
    return Lowered::table[static_cast<std::size_t>(Lowered::element_of(static_cast<int>(unit)))];
  }

  Range units_;
  int degree_;
  std::vector<UnitPlacement> placements_;
  Index owned_parameters_ = 0;
  Index parameter_size_ = 0;
  Extent slot_{};
  Extent input_{};
  Extent input_gradient_{};
  Extent output_gradient_{};
  Extent statistics_{};
  Extent transient_{};
  Extent exchange_{};
  Extent gradient_slot_{};
  int gradient_slots_ = 1;
};

}  // namespace dtrain::parallel
