// Derives the layouts, redistributions, widths and parameters of a unit's nodes from its layers.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/buffer_planner.hpp"
#include "dtrain/parallel/redistribution.hpp"

namespace dtrain::parallel {

/// How units run, beyond what their layers say: which outputs are computed again in the backward pass, by the kind of
/// their layer, whether the backward passes of inputs and weights are apart, and in how many rows at a time the model's
/// last unit runs together with the loss; 0: as the other units do.
struct UnitOptions {
  bool recomputes_attention = false;
  bool recomputes_norms = false;
  bool recomputes_activations = false;
  bool splits_backward = false;
  Index loss_rows = 0;

  [[nodiscard]] constexpr bool recomputes(nn::LayerKind kind) const {
    return (kind == nn::LayerKind::attention && recomputes_attention) ||
           (kind == nn::LayerKind::norm && recomputes_norms) ||
           (kind == nn::LayerKind::activation && recomputes_activations);
  }
  /// Those of one unit of a model. One that runs together with the loss does its whole backward pass at once.
  [[nodiscard]] constexpr UnitOptions of_unit(bool last) const {
    UnitOptions options = *this;
    options.loss_rows = 0;
    if (last && loss_rows > 0) options.splits_backward = false;
    return options;
  }
  friend constexpr bool operator==(const UnitOptions&, const UnitOptions&) = default;
};

/// What the lowering derived for one node.
struct NodeRule {
  NodeTraits::Kind kind = NodeTraits::Kind::layer;
  Layout entering = Layout::invariant;  ///< before the redistribution on the way in
  nn::LayoutRule rule;                  ///< what the layer takes and gives
  Layout leaving = Layout::invariant;   ///< behind the redistribution on the way out
  Redistribution before = Redistribution::none;
  Redistribution after = Redistribution::none;
  Index parts = 1;           ///< fused parts of what reaches the node
  Index whole_before = 0;    ///< width that reaches the node, all ranks together
  Index whole_in = 0;        ///< width the layer asks for
  Index entering_width = 0;  ///< widths on one rank from here on
  Index in_width = 0;
  Index out_width = 0;
  Index leaving_width = 0;

  /// Whether the layer's own rows are those of the sequence shard.
  [[nodiscard]] constexpr bool splits_rows() const {
    return parallel::splits_rows(rule.in) || parallel::splits_rows(rule.out);
  }
};

/// A parameter of a unit: its description, its place in the unit's region, and what the tensor axis owes it.
struct UnitParameter {
  nn::Parameter parameter{};
  int node = 0;
  Index offset = 0;  ///< in elements; tied parameters have no place of their own
  /// Whole on every tensor rank, while each rank's gradient is a term of the sum.
  bool tensor_sum = false;

  [[nodiscard]] constexpr bool tied() const { return !parameter.tie.empty(); }
};

/// Elements that parameters are aligned to: 64 bytes of floats.
inline constexpr Index parameter_alignment = 16;

/// Features in one part, without padding or copies, so that `Degree` ranks' shares lie side by side.
template <Index Parts, Index WidthOfAllRanks, Index Width>
concept SharesLieSideBySide = bool(Parts == 1 && WidthOfAllRanks == Width);

/// The width before layer `L` is the width that it takes.
template <Index Before, Index Takes, class L>
concept WidthsMatch = Before == Takes;

/// Nothing comes before layer `L`, which reads tokens.
template <Index PartsBefore, class L>
concept TokensComeFirst = PartsBefore == 0;

/// Layer `L`, which reads tokens, does not begin a residual branch, whose result would be added to token ids.
template <class L, bool BeginsBranch>
concept BranchReadsFeatures = !BeginsBranch;

/// A residual branch gives the width that it is added to.
template <Index Before, Index Gives>
concept ResidualKeepsWidth = Before == Gives;

/// A layer checks its own sizes.
template <class L, TensorAxis Tensor, nn::LayoutRule Rule>
concept ChecksItself = requires { L::template check<Tensor, Rule>(); };

namespace detail {

// The state of the walk along a unit: the layout and the width between two nodes.
struct Walk {
  TensorAxis tensor;
  Layout layout;
  nn::Features features;

  [[nodiscard]] static constexpr Index width_in(Layout layout, const nn::Features& features, TensorAxis tensor) {
    return features.local(layout == Layout::split_features ? tensor.degree : 1);
  }

  template <class L>
  constexpr NodeRule step() {
    NodeRule node;
    node.entering = layout;
    node.parts = features.count;
    if constexpr (!nn::Layer<L>) {
      node.kind = std::is_same_v<L, nn::Fork>   ? NodeTraits::Kind::fork
                  : std::is_same_v<L, nn::Join> ? NodeTraits::Kind::join
                                                : NodeTraits::Kind::pass;
      node.rule = nn::row_wise(tensor);
      node.whole_in = features.whole();
      node.whole_before = node.whole_in;
      node.before = route(layout, node.rule.in);
      node.in_width = node.out_width = node.leaving_width = width_in(node.rule.in, features, tensor);
      node.entering_width = width_in(layout, features, tensor);
    } else {
      if (tensor.degree > 1) node.rule = L::layouts(layout, tensor);
      node.before = route(layout, node.rule.in);
      if (node.rule.out == Layout::partial) node.after = route(Layout::partial, tensor.stream());
      node.whole_before = nn::takes_tokens<L> ? 0 : features.whole();
      node.whole_in = L::input.whole();
      node.entering_width = nn::takes_tokens<L> ? 0 : width_in(layout, features, tensor);
      node.in_width = nn::takes_tokens<L> ? 0 : width_in(node.rule.in, L::input, tensor);
      node.out_width = width_in(node.rule.out, L::output, tensor);
      features = L::output;
    }
    node.leaving = node.after == Redistribution::none ? node.rule.out : tensor.stream();
    node.leaving_width = width_in(node.leaving, features, tensor);
    layout = node.leaving;
    return node;
  }
};

template <class Element, Scalar T>
constexpr Extent extent_of(Layout layout, Index width) {
  const Index bytes = width * static_cast<Index>(sizeof(Element));
  return splits_rows(layout) ? Extent{0, bytes} : Extent{bytes, 0};
}

template <class L, Scalar T>
constexpr NodeTraits traits_of(const NodeRule& node, TensorAxis tensor, UnitOptions options) {
  NodeTraits traits{.kind = node.kind,
                    .before = node.before,
                    .after = node.after,
                    .entering = extent_of<T, T>(node.entering, node.entering_width),
                    .in = extent_of<T, T>(node.rule.in, node.in_width),
                    .out = extent_of<T, T>(node.rule.out, node.out_width),
                    .leaving = extent_of<T, T>(node.leaving, node.leaving_width)};
  if constexpr (nn::Layer<L>) {
    traits.takes_tokens = nn::takes_tokens<L>;
    traits.saves_input = nn::saves_input<L>();
    traits.saves_output = nn::saves_output<L>();
    traits.in_place = nn::works_in_place<L>();
    traits.identity_gradient = nn::identity_gradient<L>();
    traits.has_parameters = L::parameters(nn::LayoutRule{}).size() > 0;
    traits.recomputes = options.recomputes(nn::layer_kind<L>());
    const Index kept = nn::saved_per_row<L>(tensor);
    traits.statistics =
        extent_of<Accumulator<T>, T>(node.splits_rows() ? Layout::split_sequence : Layout::invariant, kept);
  }
  return traits;
}

/// How many parameters a node has.
template <class L>
constexpr int parameter_count() {
  if constexpr (nn::Layer<L>)
    return static_cast<int>(L::parameters(nn::LayoutRule{}).size());
  else
    return 0;
}

constexpr UnitParameter describe_parameter(const nn::Parameter& parameter, int node, const NodeRule& rule,
                                           TensorAxis tensor) {
  const bool works_whole = parameter.after_sum
                               ? tensor.stream() == Layout::invariant
                               : rule.rule.in == Layout::invariant && rule.rule.out == Layout::invariant;
  return {.parameter = parameter,
          .node = node,
          .tensor_sum = tensor.degree > 1 && parameter.cut == nn::Cut::none && !works_whole};
}

/// Gives every parameter its place: those that the tensor axis sums lie together at the end, so that one all-reduce
/// takes them all. Returns where that part begins and where the region ends.
constexpr std::pair<Index, Index> place_parameters(std::span<UnitParameter> parameters, int degree) {
  Index at = 0;
  Index sums_begin = 0;
  for (const bool summed : {false, true}) {
    if (summed) sums_begin = at;
    for (UnitParameter& parameter : parameters) {
      if (parameter.tied() || parameter.tensor_sum != summed) continue;
      parameter.offset = at;
      at += round_up(parameter.parameter.local_size(degree), parameter_alignment);
    }
  }
  return {sums_begin, at};
}

// Functions, because compilers print the arguments of an instantiation: layouts by name, and the layer.

template <Layout From, Layout To, class L>
consteval void require_redistribution() {
  static_assert(KnownRedistribution<From, To, L>,
                "dtrain: no redistribution leads from the layout before a layer to the layout that it takes");
}
template <Index Parts, Index WidthOfAllRanks, Index Width>
consteval void require_shares_side_by_side() {
  static_assert(SharesLieSideBySide<Parts, WidthOfAllRanks, Width>,
                "dtrain: fused, padded or copied features cannot be gathered or sliced between tensor-parallel ranks");
}
template <Index Before, Index Gives>
consteval void require_residual_width() {
  static_assert(ResidualKeepsWidth<Before, Gives>, "dtrain: a residual branch does not give the width that it adds to");
}
template <class L, bool BeginsBranch>
consteval void require_branch_of_features() {
  static_assert(BranchReadsFeatures<L, BeginsBranch>,
                "dtrain: a residual branch begins with a layer that reads tokens, to which nothing can be added");
}
template <Index PartsBefore, class L>
consteval void require_tokens_first() {
  static_assert(TokensComeFirst<PartsBefore, L>,
                "dtrain: a layer that reads tokens stands behind another one, whose output would be lost");
}
template <Index Before, Index Takes, class L>
consteval void require_width() {
  static_assert(WidthsMatch<Before, Takes, L>, "dtrain: the width before a layer is not the width that it takes");
}

}  // namespace detail

}  // namespace dtrain::parallel
