// The parameters and gradients that a rank keeps of one chunk: whole, or its shards of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dtrain/parallel/parameter_map.hpp"
#include "dtrain/parallel/parameter_name.hpp"
#include "dtrain/parallel/rank_plan.hpp"

namespace dtrain::parallel {

/// A part of the parameters that one rank updates: where it lies in what the rank keeps of parameters and of gradients,
/// and in the optimizer's state.
struct UpdatePiece {
  Index parameters = 0;
  Index gradients = 0;
  Index state = 0;
  Index size = 0;
  bool decay = false;
};

/// The region of a chunk's parameters is one numbering of its elements; `map()` says what is where in it, and
/// `sharding()` which parts of it this rank keeps. What is kept whole is stored as in the region, shards one after
/// another.
template <class Lowered, NumberFormat Format, class Device>
class ParameterStore {
 public:
  using T = typename PrecisionOf<Format>::Parameter;
  using G = typename PrecisionOf<Format>::Gradient;

  /// Allocates chunk `chunk` of `plan`, which must outlive this store, and sets its parameters to their start.
  ParameterStore(Device& device, const RankPlan<Lowered, Format>& plan, std::size_t chunk, int tensor_rank,
                 std::uint64_t seed)
      : plan_(plan.chunks()[chunk]), sharding_(plan.shards()[chunk]), rule_(plan.sharding()) {
    parameters_ = device.allocate(plan.kept_parameters(chunk) * static_cast<Index>(sizeof(T)), Contents::zero);
    gradients_ = device.allocate(plan.kept_gradients(chunk) * static_cast<Index>(sizeof(G)), Contents::zero);
    if (plan.converted_bytes(chunk) > 0) converted_ = device.allocate(plan.converted_bytes(chunk));
    map_parameters(tensor_rank);
    initialize_parameters(seed);
  }

  [[nodiscard]] const StagePlan<Lowered, Format>& plan() const { return plan_; }
  [[nodiscard]] const Sharding& sharding() const { return sharding_; }
  [[nodiscard]] const ShardingRule& rule() const { return rule_; }
  [[nodiscard]] const std::vector<LocalParameter>& map() const { return map_; }
  /// Bytes of the arenas.
  [[nodiscard]] MemoryPlan allocated() const {
    return {.parameters = parameters_.bytes(), .gradients = gradients_.bytes(), .buckets = converted_.bytes()};
  }

  /// What this rank keeps.
  [[nodiscard]] std::span<T> parameters() {
    return parameters_.template elements<T>(0, parameters_.bytes() / static_cast<Index>(sizeof(T)));
  }
  [[nodiscard]] std::span<G> gradients() {
    return gradients_.template elements<G>(0, gradients_.bytes() / static_cast<Index>(sizeof(G)));
  }
  /// The whole region of gradients as they are reduced, where `R` is not `G`.
  template <Scalar R>
  [[nodiscard]] std::span<R> converted_gradients() {
    return converted_.template elements<R>(0, converted_.bytes() / static_cast<Index>(sizeof(R)));
  }
  /// This rank's shard of a group, where it is kept.
  [[nodiscard]] std::span<T> parameter_shard(const ShardGroup& group) {
    return part(parameters(), rule_.shards_parameters() ? group.stored : group.shard.begin, group.shard.size());
  }
  [[nodiscard]] std::span<G> gradient_shard(const ShardGroup& group) {
    return part(gradients(), rule_.shards_gradients() ? group.stored : group.shard.begin, group.shard.size());
  }

  /// Calls `visit(index in parameters(), element of the whole tensor, count)` for what is kept of a parameter.
  template <class Visit>
  void for_parameter_runs(const LocalParameter& parameter, Visit&& visit) const {
    for_each_run(parameter, [&](Range region, Index whole) {
      if (!rule_.shards_parameters())
        visit(region.begin, whole, region.size());
      else
        kept_runs(region, whole, [&](Range kept, Index stored, Index first) { visit(stored, first, kept.size()); });
    });
  }
  /// The same for the gradients that are complete on this rank after a step, with indices in `gradients()`.
  template <class Visit>
  void for_gradient_runs(const LocalParameter& parameter, Visit&& visit) const {
    for_each_run(parameter, [&](Range region, Index whole) {
      kept_runs(region, whole, [&](Range kept, Index stored, Index first) {
        visit(rule_.shards_gradients() ? stored : kept.begin, first, kept.size());
      });
    });
  }

  /// Calls `visit(index in parameters(), index in the optimizer's state, element of the whole tensor, count)` for what
  /// this rank updates of a parameter.
  template <class Visit>
  void for_update_runs(const LocalParameter& parameter, Visit&& visit) const {
    for_each_run(parameter, [&](Range region, Index whole) {
      kept_runs(region, whole, [&](Range kept, Index stored, Index first) {
        visit(rule_.shards_parameters() ? stored : kept.begin, stored, first, kept.size());
      });
    });
  }

  /// What this rank updates, in pieces of one kind of decay: neighbours are taken together over the padding between
  /// them, which stays 0.
  [[gnu::cold]] [[nodiscard]] std::vector<UpdatePiece> update_pieces() const {
    std::vector<const LocalParameter*> sorted;
    for (const LocalParameter& parameter : map_) sorted.push_back(&parameter);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    std::vector<UpdatePiece> pieces;
    for (const LocalParameter* parameter : sorted)
      sharding_.for_kept(parameter->range(), [&](Range kept, Index stored) {
        UpdatePiece piece{.parameters = rule_.shards_parameters() ? stored : kept.begin,
                          .gradients = rule_.shards_gradients() ? stored : kept.begin,
                          .state = stored,
                          .size = kept.size(),
                          .decay = parameter->decay};
        if (!pieces.empty() && follows(pieces.back(), piece))
          pieces.back().size = piece.state + piece.size - pieces.back().state;
        else
          pieces.push_back(piece);
      });
    return pieces;
  }
  /// Sets numbers laid out as the optimizer's state to the start of the parameters, not rounded to their type.
  template <Scalar Number>
  [[gnu::cold]] void start_of_parameters(std::uint64_t seed, std::span<Number> state) const {
    for (const LocalParameter& parameter : map_) {
      const ParameterStart start(parameter, seed);
      for_update_runs(parameter, [&](Index, Index at, Index whole, Index count) {
        for (Index i = 0; i < count; ++i)
          state[static_cast<std::size_t>(at + i)] = static_cast<Number>(start(whole + i));
      });
    }
  }

 private:
  template <class Element>
  static std::span<Element> part(std::span<Element> whole, Index begin, Index size) {
    return whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  }
  template <class Visit>
  void kept_runs(Range region, Index whole, Visit&& visit) const {
    sharding_.for_kept(region,
                       [&](Range kept, Index stored) { visit(kept, stored, whole + kept.begin - region.begin); });
  }
  static bool follows(const UpdatePiece& last, const UpdatePiece& piece) {
    const Index step = piece.state - last.state;
    return piece.decay == last.decay && piece.parameters - last.parameters == step &&
           piece.gradients - last.gradients == step;
  }

  [[gnu::cold]] void initialize_parameters(std::uint64_t seed) {
    const std::span<T> kept = parameters();
    for (const LocalParameter& parameter : map_) {
      const ParameterStart start(parameter, seed);
      for_parameter_runs(parameter, [&](Index at, Index whole, Index count) {
        for (Index i = 0; i < count; ++i)
          kept[static_cast<std::size_t>(at + i)] = static_cast<T>(static_cast<Accumulator<T>>(start(whole + i)));
      });
    }
  }

  [[gnu::cold]] void map_parameters(int tensor_rank) {
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (map_element<static_cast<int>(E)>(tensor_rank), ...);
      (map_copies<static_cast<int>(E)>(tensor_rank), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
  }
  template <int E>
  [[gnu::cold]] void map_element(int tensor_rank) {
    using U = typename Lowered::template UnitOf<E>;
    constexpr ElementTable element = Lowered::table[E];
    const Index begin = std::max<Index>(element.first_unit, plan_.units().begin);
    const Index end = std::min<Index>(element.first_unit + element.count, plan_.units().end);
    for (Index unit = begin; unit < end; ++unit)
      for (const UnitParameter& described : U::parameters)
        if (!described.tied())
          map_.push_back(locate_parameter(described.parameter, name_of<U>(described, static_cast<int>(unit)), unit,
                                          plan_.placement(unit).parameters + described.offset, Lowered::tensor.degree,
                                          tensor_rank));
  }
  // A copy starts as the owner does, since the start is a function of the name, and is counted by the owner alone.
  template <int Owner>
  [[gnu::cold]] void map_copies(int tensor_rank) {
    using U = typename Lowered::template UnitOf<Owner>;
    for (const Tie& tie : Lowered::ties) {
      if (tie.owner != Owner || !plan_.holds_copy(tie)) continue;
      for (const UnitParameter& described : U::parameters) {
        if (described.tied() || described.offset != tie.offset) continue;
        LocalParameter copy = locate_parameter(
            described.parameter, name_of<U>(described, Lowered::table[Owner].first_unit),
            Lowered::table[Owner].first_unit, plan_.tied_range(tie).begin, Lowered::tensor.degree, tensor_rank);
        copy.tied_copy = true;
        for (Segment& segment : copy.segments) segment.counted = false;
        map_.push_back(std::move(copy));
      }
    }
  }
  template <class U>
  [[gnu::cold]] static std::string name_of(const UnitParameter& described, int unit) {
    return whole_name(Lowered::unit_prefix(unit), U::paths[static_cast<std::size_t>(described.node)],
                      described.parameter.name);
  }

  using Arena = typename Device::Arena;
  const StagePlan<Lowered, Format>& plan_;
  const Sharding& sharding_;
  ShardingRule rule_;
  Arena parameters_{};
  Arena gradients_{};
  Arena converted_{};
  std::vector<LocalParameter> map_{};
};

}  // namespace dtrain::parallel
