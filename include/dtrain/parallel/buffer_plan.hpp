// The plan of a unit's buffers: which activations stay for the backward pass, and where the others lie meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "dtrain/core/view.hpp"
#include "dtrain/parallel/redistribution.hpp"

namespace dtrain::parallel {

/// A size in bytes that grows with the micro-batch: so many per row, and so many per row of the sequence shard.
struct Extent {
  Index per_row = 0;
  Index per_shard_row = 0;

  [[nodiscard]] constexpr Index bytes(Index rows, Index shard_rows) const {
    return per_row * rows + per_shard_row * shard_rows;
  }
  constexpr Extent& operator+=(Extent other) {
    per_row += other.per_row;
    per_shard_row += other.per_shard_row;
    return *this;
  }
  [[nodiscard]] friend constexpr Extent operator+(Extent left, Extent right) { return left += right; }
  [[nodiscard]] friend constexpr Extent operator*(Index count, Extent extent) {
    return {count * extent.per_row, count * extent.per_shard_row};
  }
  /// Large enough for either.
  [[nodiscard]] friend constexpr Extent larger(Extent left, Extent right) {
    return {std::max(left.per_row, right.per_row), std::max(left.per_shard_row, right.per_shard_row)};
  }
  friend constexpr bool operator==(Extent, Extent) = default;
};

/// What the planner must know of a node.
struct NodeTraits {
  enum class Kind : std::uint8_t {
    layer,
    fork,
    join,
    pass,  ///< nothing but its redistribution
  };
  Kind kind = Kind::layer;
  Redistribution before = Redistribution::none;  ///< on the way in
  Redistribution after = Redistribution::none;   ///< on the way out
  Extent entering{};                             ///< of the value before `before`
  Extent in{};                                   ///< of the layer's input
  Extent out{};                                  ///< of the layer's output
  Extent leaving{};                              ///< of the value behind `after`
  Extent statistics{};                           ///< kept besides activations
  bool takes_tokens = false;
  bool saves_input = false;
  bool saves_output = false;
  bool in_place = false;
  bool identity_gradient = false;
  bool has_parameters = false;
  bool recomputes = false;  ///< its output is computed again in the backward pass instead of being kept
};

/// Where a value lies in the forward pass.
struct Place {
  enum class Where : std::uint8_t { nowhere, input, output, saved, transient };
  Where where = Where::nowhere;
  Extent offset{};
};

/// Index of the incoming gradient; the others are slots 0, 1, ... of the gradient pool.
inline constexpr int incoming_gradient = -1;
inline constexpr int no_gradient = -2;

/// Where the values of one node lie.
struct NodePlan {
  Place entering;                       ///< the node's input before redistribution
  Place in;                             ///< the layer's input
  Place out;                            ///< the layer's output
  Place leaving;                        ///< the node's output
  Place branch;                         ///< join: the residual value
  Extent statistics{};                  ///< offset in the saved region
  int gradient_leaving = no_gradient;   ///< of the node's output
  int gradient_out = no_gradient;       ///< of the layer's output
  int gradient_in = no_gradient;        ///< of the layer's input
  int gradient_entering = no_gradient;  ///< of the node's input
  int gradient_branch = no_gradient;    ///< fork: the gradient that came past the branch
  /// Just before this node's backward pass, the output of node `producer`, its input, is computed again; or its own.
  bool recomputes_input = false;
  bool recomputes_own = false;
  int producer = 0;
  /// Offsets in the deferred region, of layers with parameters.
  Extent deferred_leaving{};
  Extent deferred_out{};
};

/// The plan of a unit of `Count` nodes.
template <int Count>
struct BufferPlan {
  std::array<NodePlan, Count> nodes{};
  Extent output;                              ///< the unit's output, kept per micro-batch in flight
  Extent saved;                               ///< what else is kept from the forward to the backward pass
  Extent deferred;                            ///< gradients kept from the input's to the weights' backward pass
  Place leaving;                              ///< the unit's output
  Extent transient;                           ///< region shared by all units in the forward pass
  int gradient_slots = 0;                     ///< slots of the pool in use at once
  Extent gradient_slot;                       ///< size of the largest
  Extent exchange;                            ///< room to gather features in
  int outgoing_gradient = incoming_gradient;  ///< slot of the gradient of the unit's input
  bool output_is_read_again = false;          ///< the backward pass reads the unit's own output
};

}  // namespace dtrain::parallel
