// The mesh: where a rank stands on every axis of a strategy, and its communicator along each.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
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

template <class... Policies>
struct PolicyList {
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
};

template <class S>
struct PoliciesOf;
template <class... Policies>
struct PoliciesOf<Strategy<Policies...>> {
  using type = PolicyList<Policies...>;
};

}  // namespace detail

/// The ranks of a strategy as a grid. Any list of axes: none of them is treated apart.
template <class S>
class Mesh {
  using Policies = typename detail::PoliciesOf<S>::type;

 public:
  /// The degree of every policy, with `dynamic` replaced by what `world_size` leaves.
  /// Throws ConfigurationError when the numbers do not fit.
  Mesh(int world_size, int world_rank) : world_rank_(world_rank), ranks_(world_size) {
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
      strides_[at] = stride_product(sorted, i);
      rest /= degree;
    }
  }

  [[nodiscard]] int world_rank() const { return world_rank_; }
  /// All ranks together.
  [[nodiscard]] int ranks() const { return ranks_; }

  /// Where this rank stands on an axis; an axis that the strategy does not name has size 1.
  template <class Axis>
  [[nodiscard]] Coordinate along() const {
    if constexpr (Policies::template index_of<Axis> >= 0)
      return coordinates_[static_cast<std::size_t>(Policies::template index_of<Axis>)];
    return {};
  }
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
    describe_axis<axes::Pipeline>(text);
    describe_axis<axes::Data>(text);
    describe_axis<axes::Tensor>(text);
    return text.empty() ? "the only rank" : text;
  }

  /// Refuses a world that the strategy's degrees do not fill.
  static void check_world(int world_size) {
    if (S::has_dynamic ? world_size < 1 || world_size % S::static_ranks != 0 : world_size != S::static_ranks)
      throw ConfigurationError(concatenate("dtrain: strategy ", S::describe(), " needs ",
                                           S::has_dynamic ? "a multiple of " : "", S::static_ranks,
                                           " ranks, but there are ", world_size,
                                           ". Start that many, or choose another strategy."));
  }

 private:
  int stride_product(const std::array<int, Policies::size>& sorted, int until) const {
    int stride = 1;
    for (const int i : sorted) {
      if (i == until) break;
      stride *= coordinates_[static_cast<std::size_t>(i)].size;
    }
    return stride;
  }
  template <class Axis>
  void describe_axis(std::string& text) const {
    const Coordinate place = along<Axis>();
    if (place.size > 1)
      text += concatenate(text.empty() ? "" : ", ", std::string_view(Axis::name), " ", place.rank, " of ", place.size);
  }

  int world_rank_;
  int ranks_;
  std::array<Coordinate, Policies::size> coordinates_{};
  std::array<int, Policies::size> strides_{};
};

/// The communicator along an axis: of a degree of one, which the compiler knows, nothing is left but `Self`.
template <class S, class Axis, class C>
using AxisCommunicator = std::conditional_t<S::template On<Axis>::degree == 1, comm::Self, C>;

/// One rank's communicators: the world's, and one along each axis.
template <class S, class C>
class AxisCommunicators {
 public:
  /// Collective over the world: every rank builds its own at the same time.
  explicit AxisCommunicators(C& world)
      : mesh_(world.size(), world.rank()),
        world_(world),
        tensor_(along<axes::Tensor>()),
        data_(along<axes::Data>()),
        pipeline_(along<axes::Pipeline>()) {}

  [[nodiscard]] const Mesh<S>& mesh() const { return mesh_; }
  [[nodiscard]] C& world() { return world_; }
  [[nodiscard]] auto& tensor() { return tensor_; }
  [[nodiscard]] auto& data() { return data_; }
  [[nodiscard]] auto& pipeline() { return pipeline_; }

 private:
  template <class Axis>
  AxisCommunicator<S, Axis, C> along() {
    if constexpr (S::template On<Axis>::degree == 1)
      return {};
    else
      return *world_.split(mesh_.template group<Axis>(), mesh_.template along<Axis>().rank, Axis::name);
  }

  Mesh<S> mesh_;
  C& world_;
  AxisCommunicator<S, axes::Tensor, C> tensor_;
  AxisCommunicator<S, axes::Data, C> data_;
  AxisCommunicator<S, axes::Pipeline, C> pipeline_;
};

}  // namespace dtrain::parallel
