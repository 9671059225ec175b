// The sizes of one run of units: where parameters and saved values lie, and which parts of the region are sharded.
#pragma once

#include <algorithm>
#include <vector>

#include "dtrain/core/precision.hpp"
#include "dtrain/parallel/batch_shape.hpp"
#include "dtrain/parallel/cross_entropy.hpp"
#include "dtrain/parallel/loss_unit.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/recompute.hpp"

namespace dtrain::parallel {

/// Rows that buffers of a micro-batch are planned for: 32 keep every planned buffer aligned to 64 bytes.
inline constexpr Index row_multiple = 32;

/// Where one unit of a stage lies.
struct UnitPlacement {
  Index parameters = 0;  ///< in the stage's parameter region, in elements
  Extent output{};       ///< in a slot of activations, as the next two
  Extent saved{};
  Extent deferred{};
  /// Of its forward pass only the output is kept; what else is saved lies in memory that all units share.
  bool recomputed = false;
};

/// Sizes of memory that the units of a rank share, each while it runs.
struct SharedPlan {
  Extent transient{};      ///< values of the forward pass
  Extent exchange{};       ///< room to gather features in
  Extent recomputed{};     ///< what a unit saves whose forward pass is run again
  Extent gradient_slot{};  ///< of the pool of activation gradients
  int gradient_slots = 1;
  Index gathered = 0;  ///< elements of the largest unit's parameters, those of ties included
  // In rows of a chunk of the loss, where it is computed in chunks.
  Extent loss_chunk{};   ///< all values of the unit that runs together with the loss
  Extent loss_logits{};  ///< of these, the logits

  constexpr SharedPlan& include(const SharedPlan& other) {
    transient = larger(transient, other.transient);
    exchange = larger(exchange, other.exchange);
    recomputed = larger(recomputed, other.recomputed);
    gradient_slot = larger(gradient_slot, other.gradient_slot);
    gradient_slots = std::max(gradient_slots, other.gradient_slots);
    gathered = std::max(gathered, other.gathered);
    loss_chunk = larger(loss_chunk, other.loss_chunk);
    loss_logits = larger(loss_logits, other.loss_logits);
    return *this;
  }
  /// All that grows with the micro-batch. A chunk of the loss has a fixed number of rows.
  [[nodiscard]] constexpr Extent extent() const {
    return transient + exchange + recomputed + static_cast<Index>(gradient_slots) * gradient_slot;
  }
};

/// A run of units [units.begin, units.end) of the model: a stage, or one chunk of it.
template <class Lowered, NumberFormat Format>
class StagePlan {
  using T = typename PrecisionOf<Format>::Parameter;
  using Loss = LossUnit<Lowered, T>;

 public:
  constexpr explicit StagePlan(Range units, RecomputationRule recomputation = {}) : units_(units) {
    Index parameters = 0;
    Extent slot{};
    for (Index u = units.begin; u < units.end; ++u) {
      const ElementTable& element = element_of(u);
      UnitPlacement place{.parameters = parameters, .output = slot, .recomputed = recomputes(u, recomputation)};
      place.saved = place.output + element.output;
      place.deferred = place.recomputed ? place.saved : place.saved + element.saved;
      placements_.push_back(place);
      parameters += element.parameter_size;
      if (is_loss_unit(u)) {
        include_loss_unit(u);
        continue;
      }
      slot = place.deferred + element.deferred;
      shared_.include({.transient = element.transient,
                       .exchange = element.exchange,
                       .recomputed = place.recomputed ? element.saved : Extent{},
                       .gradient_slot = element.gradient_slot,
                       .gradient_slots = element.gradient_slots + 1,
                       .gathered = gathered_size(u)});
    }
    owned_parameters_ = parameters;
    for (const Tie& tie : Lowered::ties)
      if (holds_copy(tie)) parameters += round_up(tie.size, parameter_alignment);
    parameter_size_ = parameters;
    if (!first()) {
      input_ = slot;
      slot += input_extent();
      input_gradient_ = slot;
      slot += input_extent();
    }
    if (last() && !Loss::apart) {
      statistics_ = slot;
      slot += CrossEntropy<Lowered, T>::statistics;
    } else if (!last()) {
      output_gradient_ = slot;
      slot += output_extent();
    }
    slot_ = slot;
  }

  [[nodiscard]] constexpr Range units() const { return units_; }
  [[nodiscard]] constexpr bool first() const { return units_.begin == 0; }
  [[nodiscard]] constexpr bool last() const { return units_.end == Lowered::units; }
  [[nodiscard]] constexpr const UnitPlacement& placement(Index unit) const {
    return placements_[static_cast<std::size_t>(unit - units_.begin)];
  }

  /// Elements of the parameter region; the copies of tied parameters lie at its end.
  [[nodiscard]] constexpr Index parameter_size() const { return parameter_size_; }
  [[nodiscard]] constexpr Index owned_parameters() const { return owned_parameters_; }
  /// The part of the region that a unit owns.
  [[nodiscard]] constexpr Range region_of(Index unit) const {
    const Index begin = placement(unit).parameters;
    return {begin, begin + element_of(unit).parameter_size};
  }
  /// The regions of the units from last to first, as the backward pass completes their gradients.
  [[nodiscard]] constexpr std::vector<Range> backward_pieces() const {
    std::vector<Range> result;
    for (Index unit = units_.end - 1; unit >= units_.begin; --unit) result.push_back(region_of(unit));
    return result;
  }
  /// Where the parts of the region end that ZeRO shards: units, cut around parameters that others are tied to, so that
  /// all holders of such a parameter cut it alike; and the copies.
  [[nodiscard]] constexpr std::vector<Index> group_ends() const {
    std::vector<Index> ends;
    for (Index unit = units_.begin; unit < units_.end; ++unit) {
      for (const Tie& tie : Lowered::ties)
        if (holds_element(tie.owner) && unit_of(tie.owner) == unit) {
          ends.push_back(placement(unit).parameters + tie.offset);
          ends.push_back(ends.back() + round_up(tie.size, parameter_alignment));
        }
      ends.push_back(region_of(unit).end);
    }
    for (const Tie& tie : Lowered::ties)
      if (holds_copy(tie)) ends.push_back(tied_range(tie).end);
    std::sort(ends.begin(), ends.end());
    return ends;
  }
  [[nodiscard]] constexpr bool holds_element(int element) const { return units_.contains(unit_of(element)); }
  /// Whether a tie's user is here and its owner elsewhere, so that a copy stands at the end of the region.
  [[nodiscard]] constexpr bool holds_copy(const Tie& tie) const {
    return holds_element(tie.user) && !holds_element(tie.owner);
  }
  /// Where the parameter of a tie lies where it is read or owned: with its owner, or in the copy at the end.
  [[nodiscard]] constexpr Range tied_range(const Tie& wanted) const {
    const Index size = round_up(wanted.size, parameter_alignment);
    if (holds_element(wanted.owner)) {
      const Index at = placement(unit_of(wanted.owner)).parameters + wanted.offset;
      return {at, at + size};
    }
    Index at = owned_parameters_;
    for (const Tie& tie : Lowered::ties) {
      if (tie.user == wanted.user) break;
      if (holds_copy(tie)) at += round_up(tie.size, parameter_alignment);
    }
    return {at, at + size};
  }
  /// Elements that a unit needs of parameters: its own, and behind them the one it is tied to.
  [[nodiscard]] static constexpr Index gathered_size(Index unit) {
    const int element = Lowered::element_of(static_cast<int>(unit));
    Index size = Lowered::table[static_cast<std::size_t>(element)].parameter_size;
    for (const Tie& tie : Lowered::ties)
      if (tie.user == element) size += round_up(tie.size, parameter_alignment);
    return size;
  }

  // Regions of a slot of activations.
  [[nodiscard]] constexpr Extent slot() const { return slot_; }
  /// The part of a slot that holds the logits.
  [[nodiscard]] constexpr Extent logits() const {
    return last() && !Loss::apart ? element_of(units_.end - 1).output : Extent{};
  }
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
  [[nodiscard]] constexpr const SharedPlan& shared() const { return shared_; }

  /// Rows that a slot is planned for, and of these the sequence shard's.
  [[nodiscard]] static constexpr Index row_capacity(Index rows) { return round_up(rows, row_multiple); }
  [[nodiscard]] static constexpr Index shard_capacity(Index rows) {
    return round_up((rows + Lowered::tensor.degree - 1) / Lowered::tensor.degree, row_multiple);
  }
  /// Bytes of inputs and targets of a local batch of so many rows.
  [[nodiscard]] constexpr Index token_bytes(Index local_rows) const {
    Index bytes = 0;
    if (first())
      bytes += local_rows * (Lowered::takes_tokens ? 4 : Lowered::input_width * static_cast<Index>(sizeof(T)));
    if (last()) bytes += local_rows * 4;
    return bytes;
  }

 private:
  static constexpr bool is_loss_unit(Index unit) { return Loss::apart && unit + 1 == Lowered::units; }
  // Nothing of the unit lies in a slot. Its chunks leave their part of the gradient of its input in the pool.
  constexpr void include_loss_unit(Index unit) {
    const ElementTable& element = element_of(unit);
    shared_.include({.gradient_slot = detail::extent_of<T, T>(element.entering, element.entering_width),
                     .gathered = gathered_size(unit),
                     .loss_chunk = Loss::places.total,
                     .loss_logits = element.output});
  }
  static constexpr const ElementTable& element_of(Index unit) {
    return Lowered::table[static_cast<std::size_t>(Lowered::element_of(static_cast<int>(unit)))];
  }
  static constexpr Index unit_of(int element) { return Lowered::table[static_cast<std::size_t>(element)].first_unit; }
  // The loss overwrites the output of the model's last unit, which therefore is not computed again.
  static constexpr bool recomputes(Index unit, const RecomputationRule& rule) {
    const ElementTable& element = element_of(unit);
    return rule.every > 0 && element.repeated && unit + 1 < Lowered::units &&
           (unit - element.first_unit) % rule.every == 0;
  }

  Range units_;
  std::vector<UnitPlacement> placements_;
  Index owned_parameters_ = 0;
  Index parameter_size_ = 0;
  Extent slot_{};
  Extent input_{};
  Extent input_gradient_{};
  Extent output_gradient_{};
  Extent statistics_{};
  SharedPlan shared_{};
};

}  // namespace dtrain::parallel
