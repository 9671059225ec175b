// The moves between layouts of an activation over the tensor axis, and the table that picks them.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtrain/nn/layout.hpp"

namespace dtrain::parallel {

using nn::Layout;
using nn::TensorAxis;

/// A move between layouts; the second part of each comment is what its backward pass does.
enum class Redistribution : std::uint8_t {
  none,
  reduce_gradient,   ///< invariant to replicated: nothing; all-reduce
  all_reduce,        ///< partial to invariant: all-reduce; nothing
  gather_sequence,   ///< split<sequence> to replicated: all-gather; reduce-scatter
  scatter_sequence,  ///< partial to split<sequence>: reduce-scatter; all-gather
  gather_features,   ///< split<features> to invariant: all-gather; slice
  slice_features,    ///< invariant to split<features>: slice; all-gather
  missing,           ///< no row in the table
};

/// The table of moves. A pair without a row is `missing`, which the lowering refuses.
constexpr Redistribution route(Layout from, Layout to) {
  if (from == to) return Redistribution::none;
  if (from == Layout::invariant && to == Layout::replicated) return Redistribution::reduce_gradient;
  if (from == Layout::partial && to == Layout::invariant) return Redistribution::all_reduce;
  if (from == Layout::split_sequence && to == Layout::replicated) return Redistribution::gather_sequence;
  if (from == Layout::partial && to == Layout::split_sequence) return Redistribution::scatter_sequence;
  if (from == Layout::split_features && to == Layout::invariant) return Redistribution::gather_features;
  if (from == Layout::invariant && to == Layout::split_features) return Redistribution::slice_features;
  return Redistribution::missing;
}

/// Which collective a move is, in one direction.
struct Movement {
  std::string_view forward;
  std::string_view backward;
};

constexpr Movement movement_of(Redistribution redistribution) {
  switch (redistribution) {
    case Redistribution::reduce_gradient:
      return {"", "all-reduce"};
    case Redistribution::all_reduce:
      return {"all-reduce", ""};
    case Redistribution::gather_sequence:
      return {"all-gather", "reduce-scatter"};
    case Redistribution::scatter_sequence:
      return {"reduce-scatter", "all-gather"};
    case Redistribution::gather_features:
      return {"all-gather", "slice"};
    case Redistribution::slice_features:
      return {"slice", "all-gather"};
    case Redistribution::none:
    case Redistribution::missing:
      break;
  }
  return {"", ""};
}

/// A row of the table leads from `From` to `To`, the layout that layer `L` takes.
template <Layout From, Layout To, class L>
concept KnownRedistribution = route(From, To) != Redistribution::missing;

/// Whether the rows of an activation in this layout are cut over the tensor ranks.
constexpr bool splits_rows(Layout layout) { return layout == Layout::split_sequence; }

}  // namespace dtrain::parallel
