// The mesh: where a rank stands on every axis of a strategy, and its communicator along each.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/comm/self.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/strategy.hpp"

namespace dtrain::parallel {

/// A rank's place along one axis.
struct Coordinate {
  int rank = 0;
  int size = 1;
};

namespace detail {

// The numbers of a list of policies.
template <class List>
struct PolicyTable;
template <class... Policies>
struct PolicyTable<PolicyList<Policies...>> {
  static constexpr int size = sizeof...(Policies);
  template <class Axis>
  static constexpr int index_of = [] {
    int at = -1;
    int i = 0;
    ((at = std::is_same_v<typename Policies::Axis, Axis> ? i : at, ++i), ...);
    return at;
  }();
  static constexpr std::array<int, sizeof...(Policies)> degrees{Policies::degree...};
  static constexpr std::array<int, sizeof...(Policies)> orders{Policies::Axis::order...};
  static constexpr std::array<bool, sizeof...(Policies)> splits_batch{Policies::Axis::splits_batch...};
  static constexpr std::array<std::string_view, sizeof...(Policies)> names{Policies::Axis::name...};
};

}  // namespace detail

/// The ranks of a strategy as a grid. Any list of axes: none of them is treated apart.
template <class S>
class Mesh {
  using Policies = detail::PolicyTable<typename S::All>;

 public:
  /// The degree of every policy, with `dynamic` replaced by what `world_size` leaves.
  /// Throws ConfigurationError when the numbers do not fit.
  constexpr Mesh(int world_size, int world_rank) : world_rank_(world_rank), ranks_(world_size) {
    check_world(world_size);
    std::array<int, Policies::size> sorted{};
    for (int i = 0; i < Policies::size; ++i) sorted[static_cast<std::size_t>(i)] = i;
    std::sort(sorted.begin(), sorted.end(), [](int left, int right) {
      return Policies::orders[static_cast<std::size_t>(left)] < Policies::orders[static_cast<std::size_t>(right)];
    });
    int rest = world_rank;
    for (const int i : sorted) {
      const auto at = static_cast<std::size_t>(i);
      const int degree = Policies::degrees[at] == dynamic ? world_size / S::static_ranks : Policies::degrees[at];
      coordinates_[at] = {rest % degree, degree};
      if (Policies::splits_batch[at]) {
        batch_.rank += coordinates_[at].rank * batch_.size;
        batch_.size *= degree;
      }
      strides_[at] = stride_product(sorted, i);
      rest /= degree;
    }
  }

  [[nodiscard]] constexpr int world_rank() const { return world_rank_; }
  /// All ranks together.
  [[nodiscard]] constexpr int ranks() const { return ranks_; }

  /// Where this rank stands on an axis; an axis that the strategy does not name has size 1.
  template <class Axis>
  [[nodiscard]] constexpr Coordinate along() const {
    if constexpr (Policies::template index_of<Axis> >= 0)
      return coordinates_[static_cast<std::size_t>(Policies::template index_of<Axis>)];
    return {};
  }
  /// Which share of the batch this rank takes, over all axes that split it.
  [[nodiscard]] constexpr Coordinate batch_share() const { return batch_; }
  /// The world rank of the peer that differs from this rank in its place on one axis only.
  template <class Axis>
  [[nodiscard]] int peer(int place) const {
    if constexpr (Policies::template index_of<Axis> >= 0) {
      constexpr auto at = static_cast<std::size_t>(Policies::template index_of<Axis>);
      return world_rank_ + (place - coordinates_[at].rank) * strides_[at];
    }
    return world_rank_;
  }
  /// A number that is the same for the ranks that differ on this axis only: the color of their group.
  template <class Axis>
  [[nodiscard]] int group() const {
    return peer<Axis>(0);
  }
  /// "data 1 of 2, tensor 0 of 2".
  [[nodiscard]] std::string describe() const {
    std::string text;
    for (std::size_t i = 0; i < coordinates_.size(); ++i)
      if (coordinates_[i].size > 1)
        text += concatenate(text.empty() ? "" : ", ", Policies::names[i], " ", coordinates_[i].rank, " of ",
                            coordinates_[i].size);
    return text.empty() ? "the only rank" : text;
  }

  /// Refuses a world that the strategy's degrees do not fill.
  static constexpr void check_world(int world_size) {
    if (S::has_dynamic ? world_size < 1 || world_size % S::static_ranks != 0 : world_size != S::static_ranks)
      throw ConfigurationError(concatenate(
          "dtrain: strategy ", S::describe(), " needs ", S::has_dynamic ? "a multiple of " : "", S::static_ranks,
          " ranks, but there are ", world_size, ". Start that many, or choose another strategy."));
  }

 private:
  constexpr int stride_product(const std::array<int, Policies::size>& sorted, int until) const {
    int stride = 1;
    for (const int i : sorted) {
      if (i == until) break;
      stride *= coordinates_[static_cast<std::size_t>(i)].size;
    }
    return stride;
  }

  int world_rank_;
  int ranks_;
  Coordinate batch_{};
  std::array<Coordinate, Policies::size> coordinates_{};
  std::array<int, Policies::size> strides_{};
};

/// The communicator along a policy's axis: of a degree of one, which the compiler knows, nothing is left but `Self`.
template <class P, class C>
using PolicyCommunicator = std::conditional_t<P::degree == 1, comm::Self, C>;

/// One rank's communicators: the world's, and one along each axis of the strategy.
template <class S, class C, class All = typename S::All>
class AxisCommunicators;

template <class S, class C, class... Policies>
class AxisCommunicators<S, C, PolicyList<Policies...>> {
 public:
  /// Collective over the world: every rank builds its own at the same time.
  explicit AxisCommunicators(C& world)
      : mesh_(world.size(), world.rank()), world_(world), along_{split<Policies>()...} {}

  [[nodiscard]] const Mesh<S>& mesh() const { return mesh_; }
  [[nodiscard]] C& world() { return world_; }

  /// The communicator along an axis; one that the strategy does not name has this rank alone.
  template <class Axis>
  [[nodiscard]] auto& on() {
    constexpr int index = detail::PolicyTable<PolicyList<Policies...>>::template index_of<Axis>;
    if constexpr (index >= 0)
      return std::get<static_cast<std::size_t>(index)>(along_);
    else
      return self_;
  }
  [[nodiscard]] auto& tensor() { return on<axes::Tensor>(); }
  [[nodiscard]] auto& pipeline() { return on<axes::Pipeline>(); }

  /// Calls `visit.operator()<Policy>(communicator)` for every policy that splits the batch.
  template <class Visit>
  void for_batch_axes(Visit&& visit) {
    [&]<class... Batch>(PolicyList<Batch...>) {
      (visit.template operator()<Batch>(on<typename Batch::Axis>()), ...);
    }(typename S::Batch{});
  }

 private:
  template <class P>
  PolicyCommunicator<P, C> split() {
    using Axis = typename P::Axis;
    if constexpr (P::degree == 1)
      return {};
    else
      return *world_.split(mesh_.template group<Axis>(), mesh_.template along<Axis>().rank, Axis::name);
  }

  Mesh<S> mesh_;
  C& world_;
  std::tuple<PolicyCommunicator<Policies, C>...> along_;
  comm::Self self_{};
};

}  // namespace dtrain::parallel
