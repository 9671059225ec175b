// Recomputation as a part of a strategy: what the backward pass computes again instead of keeping it.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "dtrain/core/text.hpp"

namespace dtrain::parallel {

/// What the backward pass computes again instead of keeping it.
struct RecomputationRule {
  int every = 0;  ///< every so many blocks is kept by its input alone; 0: none
  bool attention = false;
  bool norms = false;
  bool activations = false;

  [[nodiscard]] constexpr bool any() const { return every > 0 || attention || norms || activations; }
  friend constexpr bool operator==(const RecomputationRule&, const RecomputationRule&) = default;
};

/// What `Recompute` is told to compute again. "Blocks" are the repeated parts of a model.
namespace recompute {
/// Every so many blocks, at least each.
template <int Nth>
concept EveryNth = Nth >= 1;

/// Every `Nth` block: of its forward pass only the input is kept (T. Chen et al., "Training deep nets with sublinear
/// memory cost", 2016).
template <int Nth>
struct EveryBlock {
  static_assert(EveryNth<Nth>, "dtrain: recomputation of every n-th block needs an n of at least 1");
  static constexpr RecomputationRule rule{.every = Nth};
};
/// All blocks.
using Full = EveryBlock<1>;
/// The outputs of attention (V. Korthikanti et al., "Reducing activation recomputation in large transformer models",
/// 2022, section 5; its matrix of scores is never kept anyway).
struct Attention {
  static constexpr RecomputationRule rule{.attention = true};
};
/// The outputs of norms, activation functions and gates, which cost little to compute.
struct NormsAndActivations {
  static constexpr RecomputationRule rule{.norms = true, .activations = true};
};
}  // namespace recompute

/// Something that can be computed again.
template <class What>
concept Recomputable = requires {
  { What::rule } -> std::convertible_to<RecomputationRule>;
};

/// Either whole blocks are computed again, by one rule, or parts of all blocks.
template <int Blocks, int Parts>
concept BlocksOrParts = bool((Blocks == 0 && Parts > 0) || (Blocks == 1 && Parts == 0));

namespace detail {
template <class What>
constexpr int count_of([[maybe_unused]] bool blocks) {
  if constexpr (Recomputable<What>)
    return (What::rule.every > 0) == blocks ? 1 : 0;
  else
    return 0;
}
}  // namespace detail

/// A part of a strategy that stands on no axis: the backward pass computes again what `What` names.
template <class... What>
struct Recompute {
  static_assert((Recomputable<What> && ...),
                "dtrain: Recompute takes what dtrain::recompute names: Full, EveryBlock, Attention, "
                "NormsAndActivations");
  static_assert(!(Recomputable<What> && ...) ||
                    BlocksOrParts<(0 + ... + detail::count_of<What>(true)), (0 + ... + detail::count_of<What>(false))>,
                "dtrain: Recompute takes either Full or one EveryBlock, or Attention, NormsAndActivations or both: the "
                "parts of a block that is computed again would be computed a third time");
  static constexpr RecomputationRule recomputation = [] {
    RecomputationRule rule;
    [[maybe_unused]] const auto take = [&](const RecomputationRule& what) {
      if (what.every > 0) rule.every = what.every;
      rule.attention = rule.attention || what.attention;
      rule.norms = rule.norms || what.norms;
      rule.activations = rule.activations || what.activations;
    };
    (take(What::rule), ...);
    return rule;
  }();
  static std::string describe() {
    std::string text;
    const auto add = [&](bool there, std::string_view name) {
      if (there) text += concatenate(text.empty() ? "" : ", ", name);
    };
    add(recomputation.every == 1, "Full");
    add(recomputation.every > 1, concatenate("EveryBlock<", recomputation.every, ">"));
    add(recomputation.attention, "Attention");
    add(recomputation.norms || recomputation.activations, "NormsAndActivations");
    return concatenate("Recompute<", text, ">");
  }
};

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::Recompute;
namespace recompute = parallel::recompute;
}  // namespace dtrain
