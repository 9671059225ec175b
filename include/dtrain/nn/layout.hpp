// How an activation lies over the tensor axis, and how a layer asks for it.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrain::nn {

/// How an activation of [rows, features] lies over the ranks of the tensor axis.
enum class Layout : std::uint8_t {
  invariant,       ///< same value on all ranks, and the same gradient
  replicated,      ///< same value on all ranks; each rank's gradient is a part of a sum
  split_features,  ///< each rank holds a range of the features
  split_sequence,  ///< each rank holds a range of the rows
  partial,         ///< each rank holds a term; the value is the sum over ranks
};

constexpr std::string_view layout_name(Layout layout) {
  switch (layout) {
    case Layout::invariant:
      return "invariant";
    case Layout::replicated:
      return "replicated";
    case Layout::split_features:
      return "split<features>";
    case Layout::split_sequence:
      return "split<sequence>";
    case Layout::partial:
      return "partial";
  }
  return "unknown";
}

/// What a layer may know of the tensor axis: how many ranks, and whether the residual stream is cut by rows.
struct TensorAxis {
  int degree = 1;
  bool sequence_parallel = false;

  /// The layout of the residual stream, which norms, dropouts and residual sums work in.
  [[nodiscard]] constexpr Layout stream() const {
    return sequence_parallel && degree > 1 ? Layout::split_sequence : Layout::invariant;
  }
  friend constexpr bool operator==(const TensorAxis&, const TensorAxis&) = default;
};

/// Which axis of a layer's parameters the tensor ranks share.
enum class Cut : std::uint8_t {
  none,     ///< every rank holds the whole
  rows,     ///< output features (Megatron's column-parallel linear layer: its matrix is transposed)
  columns,  ///< input features (Megatron's row-parallel linear layer)
};

/// A layer's answer to an incoming layout: what it takes, what it gives, and how its parameters are cut for that.
struct LayoutRule {
  Layout in = Layout::invariant;
  Layout out = Layout::invariant;
  Cut cut = Cut::none;
};

/// The rule of layers that treat every row by itself: they work in the residual stream.
constexpr LayoutRule row_wise(TensorAxis tensor) { return {tensor.stream(), tensor.stream(), Cut::none}; }

/// The rule of layers that treat every element by itself: they take any layout but a pending sum.
constexpr LayoutRule element_wise(Layout incoming, TensorAxis tensor) {
  const Layout layout = incoming == Layout::partial ? tensor.stream() : incoming;
  return {layout, layout, Cut::none};
}

}  // namespace dtrain::nn
