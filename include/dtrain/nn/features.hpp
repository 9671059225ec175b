// How wide an activation or a parameter is, and how that width divides over tensor ranks.
#pragma once

#include <concepts>

#include "dtrain/core/view.hpp"

namespace dtrain::nn {

/// `units` things of `unit_size` features that are never torn apart: heads of a head size, or single features.
struct FeaturePart {
  Index units = 0;
  Index unit_size = 1;
  /// Ranks may outnumber the units; each unit then lives on several ranks (shared key/value heads).
  bool replicable = false;
  /// Above 0: the units are padded, so that every rank gets the same multiple of this many (vocabularies).
  Index padding_multiple = 0;

  /// Units of all ranks together, padding included.
  [[nodiscard]] constexpr Index padded_units(int degree) const {
    return padding_multiple > 0 ? round_up(units, padding_multiple * degree) : units;
  }
  /// Whether `degree` ranks can share the units.
  [[nodiscard]] constexpr bool divides(int degree) const {
    return padding_multiple > 0 || units % degree == 0 || (replicable && degree % units == 0);
  }
  /// How many ranks hold the same unit.
  [[nodiscard]] constexpr int replicas(int degree) const {
    return replicable && units < degree ? degree / static_cast<int>(units) : 1;
  }
  /// The units rank `rank` of `degree` holds, padding included.
  [[nodiscard]] constexpr Range unit_range(int degree, int rank) const {
    const Index local = padded_units(degree) * replicas(degree) / degree;
    const Index begin = rank / replicas(degree) * local;
    return {begin, begin + local};
  }
  /// Features on one rank.
  [[nodiscard]] constexpr Index local(int degree) const { return unit_range(degree, 0).size() * unit_size; }
  [[nodiscard]] constexpr Index whole() const { return units * unit_size; }

  friend constexpr bool operator==(const FeaturePart&, const FeaturePart&) = default;
};

/// A width made of up to three fused parts (query, key, value; gate, up). A plain number is one part of single
/// features. On one rank the parts keep their order, each with the rank's share. An aggregate, because nvcc spells
/// template arguments of class type as braced lists.
struct Features {
  FeaturePart parts[3]{};
  int count = 0;

  [[nodiscard]] constexpr Index whole() const {
    Index sum = 0;
    for (int p = 0; p < count; ++p) sum += parts[p].whole();
    return sum;
  }
  [[nodiscard]] constexpr Index local(int degree) const {
    Index sum = 0;
    for (int p = 0; p < count; ++p) sum += parts[p].local(degree);
    return sum;
  }
  [[nodiscard]] constexpr bool divides(int degree) const {
    for (int p = 0; p < count; ++p)
      if (!parts[p].divides(degree)) return false;
    return true;
  }
  /// Whether some part lives on several ranks when `degree` ranks share the width.
  [[nodiscard]] constexpr bool replicated(int degree) const {
    for (int p = 0; p < count; ++p)
      if (parts[p].replicas(degree) > 1) return true;
    return false;
  }

  friend constexpr bool operator==(const Features&, const Features&) = default;
};

/// Parts that lie side by side.
template <std::same_as<FeaturePart>... Parts>
  requires(sizeof...(Parts) <= 3)
constexpr Features fused(Parts... parts) {
  return {{parts...}, sizeof...(Parts)};
}

/// A width given as a number is one part of single features; a width given as parts stays what it is.
constexpr Features features_of(Index width) { return fused(FeaturePart{.units = width}); }
constexpr Features features_of(const Features& features) { return features; }

/// `heads` heads of `head_size` features.
constexpr Features heads_of(Index heads, Index head_size) {
  return fused(FeaturePart{.units = heads, .unit_size = head_size});
}

/// A vocabulary: any size divides, by padding to `multiple` times the tensor degree.
constexpr Features vocabulary_of(Index size, Index multiple = 1) {
  return fused(FeaturePart{.units = size, .padding_multiple = multiple});
}

/// Query, key and value of attention, fused. Key/value heads may be fewer than the tensor ranks.
constexpr Features query_key_value(Index heads, Index key_value_heads, Index head_size) {
  return fused(FeaturePart{.units = heads, .unit_size = head_size},
               FeaturePart{.units = key_value_heads, .unit_size = head_size, .replicable = true},
               FeaturePart{.units = key_value_heads, .unit_size = head_size, .replicable = true});
}

}  // namespace dtrain::nn
