// A lowered unit: the smallest piece that the pipeline moves between stages, as the program each tensor rank runs.
#pragma once

#include <array>
#include <utility>

#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/parallel/exchange.hpp"
#include "dtrain/parallel/site.hpp"
#include "dtrain/parallel/unit_rules.hpp"

namespace dtrain::parallel {

/// The nodes of one unit, lowered for a tensor axis and the layout and width that reach it.
template <class Nodes, TensorAxis Tensor, Layout Entering, nn::Features EnteringFeatures, Scalar T, UnitOptions Options>
class Unit;

template <class... Nodes, TensorAxis Tensor, Layout Entering, nn::Features EnteringFeatures, Scalar T,
          UnitOptions Options>
class Unit<nn::NodeList<Nodes...>, Tensor, Entering, EnteringFeatures, T, Options> {
 public:
  static constexpr int size = sizeof...(Nodes);
  static constexpr TensorAxis tensor = Tensor;

  /// Rules of the nodes, in order.
  static constexpr std::array<NodeRule, size> rules = [] {
    detail::Walk walk{Tensor, Entering, EnteringFeatures};
    return std::array<NodeRule, size>{walk.template step<typename Nodes::Layer>()...};
  }();
  static constexpr Layout leaving = rules[size - 1].leaving;
  static constexpr nn::Features leaving_features = [] {
    detail::Walk walk{Tensor, Entering, EnteringFeatures};
    (walk.template step<typename Nodes::Layer>(), ...);
    return walk.features;
  }();
  static constexpr Index leaving_width = rules[size - 1].leaving_width;
  static constexpr Index entering_width = rules[0].entering_width;

  /// Where each node's parameters begin in `parameters`.
  static constexpr std::array<int, size> first_parameter = [] {
    std::array<int, size> first{};
    int count = 0;
    int node = 0;
    ((first[static_cast<std::size_t>(node++)] = count, count += detail::parameter_count<typename Nodes::Layer>()), ...);
    return first;
  }();
  static constexpr int parameter_count = (0 + ... + detail::parameter_count<typename Nodes::Layer>());

 private:
  struct Placed {
    std::array<UnitParameter, static_cast<std::size_t>(parameter_count)> parameters{};
    Index sums_begin = 0;
    Index size = 0;
  };
  static constexpr Placed placed = [] {
    Placed result;
    std::size_t at = 0;
    int node = 0;
    const auto take = [&]<class L>(std::type_identity<L>) {
      if constexpr (nn::Layer<L>)
        for (const nn::Parameter& parameter : L::parameters(rules[static_cast<std::size_t>(node)].rule))
          result.parameters[at++] =
              detail::describe_parameter(parameter, node, rules[static_cast<std::size_t>(node)], Tensor);
      ++node;
    };
    (take(std::type_identity<typename Nodes::Layer>{}), ...);
    const std::pair<Index, Index> region = detail::place_parameters(result.parameters, Tensor.degree);
    result.sums_begin = region.first;
    result.size = region.second;
    return result;
  }();

 public:
  /// The unit's parameters; those with a tie come without a place.
  static constexpr auto& parameters = placed.parameters;
  /// Elements of the unit's parameter region.
  static constexpr Index parameter_size = placed.size;
  /// The part of the region whose gradients the tensor axis sums.
  static constexpr Range tensor_sums{placed.sums_begin, placed.size};
  /// Index in `parameters` of the one that is tied to another unit's, or -1.
  static constexpr int tied_parameter = [] {
    int index = -1;
    for (int p = 0; p < parameter_count; ++p)
      if (parameters[static_cast<std::size_t>(p)].tied()) index = p;
    return index;
  }();

  static constexpr BufferPlan<size> plan = [] {
    std::size_t node = 0;
    return plan_buffers<size, Options.splits_backward>(
        std::array<NodeTraits, size>{detail::traits_of<typename Nodes::Layer, T>(rules[node++], Tensor, Options)...});
  }();

  template <int I>
  using Layer = std::tuple_element_t<static_cast<std::size_t>(I), std::tuple<typename Nodes::Layer...>>;
  static constexpr std::array<std::string_view, size> paths{Nodes::path...};
  template <int I>
  static constexpr std::string_view path = paths[I];
  /// Whether the unit reads token ids.
  static constexpr bool takes_tokens = [] {
    if constexpr (nn::Layer<Layer<0>>) return nn::takes_tokens<Layer<0>>;
    return false;
  }();
  /// FLOPs of the forward pass per row, all tensor ranks together.
  static constexpr double flops_per_row(Index context) {
    double sum = 0.0;
    const auto add = [&]<class L>(std::type_identity<L>) {
      if constexpr (nn::Layer<L>) sum += L::flops_per_row(context);
    };
    (add(std::type_identity<typename Nodes::Layer>{}), ...);
    return sum;
  }
  /// The longest context that every layer can take; 0: any.
  static constexpr Index max_context = [] {
    Index least = 0;
    const auto limit = [&](Index layer) { least = layer > 0 && (least == 0 || layer < least) ? layer : least; };
    (limit(nn::max_context<typename Nodes::Layer>()), ...);
    return least;
  }();

  /// Constants of the nodes before node `I`, and of all.
  template <int I>
  static constexpr Index constants_before(Index context) {
    Index sum = 0;
    int node = 0;
    ((sum += node++ < I ? nn::constants_of<typename Nodes::Layer>(context, Tensor) : 0), ...);
    return sum;
  }
  static constexpr Index constants_size(Index context) { return constants_before<size>(context); }
  static void fill_constants(Index context, std::span<Accumulator<T>> constants) {
    const auto fill = [&]<class L>(std::type_identity<L>) {
      const auto count = static_cast<std::size_t>(nn::constants_of<L>(context, Tensor));
      if constexpr (requires { L::fill_constants(context, Tensor, constants); })
        L::fill_constants(context, Tensor, constants.first(count));
      constants = constants.subspan(count);
    };
    (fill(std::type_identity<typename Nodes::Layer>{}), ...);
  }

  /// Refuses, in one sentence each, what cannot be lowered. Evaluated once per unit type.
  static consteval bool check() {
    check_nodes(std::make_index_sequence<static_cast<std::size_t>(size)>{});
    return true;
  }

  /// Runs the unit; its output lies at `output(batch, memory)`.
  template <Scalar G, class Device, class TensorCommunicator>
  static void forward(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory,
                      TensorCommunicator& communicator) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (forward_node<static_cast<int>(I)>(batch, memory, communicator), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(size)>{});
  }

  /// Adds to the gradients of the parameters, unless the options split the backward pass; the gradient of the input
  /// lies in the slot of `plan.outgoing_gradient`.
  template <Scalar G, class Device, class TensorCommunicator>
  static void backward(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory,
                       TensorCommunicator& communicator) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (backward_node<size - 1 - static_cast<int>(I)>(batch, memory, communicator), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(size)>{});
  }

  /// The second half of a split backward pass: adds to the gradients of the parameters what `backward` deferred.
  template <Scalar G, class Device>
  static void backward_weights(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory)
    requires(Options.splits_backward)
  {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (add_deferred<size - 1 - static_cast<int>(I)>(batch, memory), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(size)>{});
  }

  template <Scalar G, class Device>
  static Matrix<T> output(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory) {
    return value<T>(plan.leaving, leaving_width, leaving, batch, memory);
  }
  /// The gradient of the unit's input, after `backward`.
  template <Scalar G, class Device>
  static Matrix<T> input_gradient(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory) {
    return gradient(plan.outgoing_gradient, entering_width, Entering, batch, memory);
  }

  /// The view of a planned value.
  template <class Element, Scalar G, class Device>
  static Matrix<Element> value(const Place& place, Index width, Layout layout, const MicroBatch<Device>& batch,
                               const UnitMemory<T, G>& memory) {
    const Index offset = place.offset.bytes(batch.row_capacity, batch.shard_capacity);
    Element* data = nullptr;
    if (place.where == Place::Where::output) data = reinterpret_cast<Element*>(memory.output);
    if (place.where == Place::Where::saved) data = reinterpret_cast<Element*>(memory.saved + offset);
    if (place.where == Place::Where::transient) data = reinterpret_cast<Element*>(memory.transient + offset);
    if (place.where == Place::Where::input) data = const_cast<Element*>(memory.input);
    return {data, rows_in(layout, batch), width};
  }

 private:
  template <class Device>
  static Index rows_in(Layout layout, const MicroBatch<Device>& batch) {
    return splits_rows(layout) ? batch.shard.size() : batch.rows;
  }
  template <Scalar G, class Device>
  static Matrix<T> gradient(int slot, Index width, Layout layout, const MicroBatch<Device>& batch,
                            const UnitMemory<T, G>& memory) {
    T* data = slot == incoming_gradient ? memory.incoming_gradient
                                        : (slot >= 0 ? reinterpret_cast<T*>(memory.gradient_pool[slot]) : nullptr);
    return {data, rows_in(layout, batch), width};
  }

  template <int I, Scalar G, class Device, class TensorCommunicator>
  static void forward_node(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory,
                           TensorCommunicator& communicator) {
    constexpr NodeRule rule = rules[I];
    constexpr NodePlan place = plan.nodes[I];
    if constexpr (rule.kind == NodeTraits::Kind::join) {
      ops::add(*batch.device, Matrix<const T>(value<T>(place.in, rule.in_width, rule.rule.in, batch, memory)),
               Matrix<const T>(value<T>(place.branch, rule.in_width, rule.rule.in, batch, memory)),
               value<T>(place.out, rule.out_width, rule.rule.out, batch, memory));
    } else if constexpr (rule.kind == NodeTraits::Kind::pass) {
      if constexpr (rule.before != Redistribution::none) pass_node<I>(batch, memory, communicator, true);
    } else if constexpr (rule.kind == NodeTraits::Kind::layer) {
      using L = Layer<I>;
      const Site<Unit, I, T, G, Device> site(batch, memory);
      const Exchange<Tensor.degree, T, Device> exchange{batch, memory.exchange};
      const auto in = value<T>(place.in, rule.in_width, rule.rule.in, batch, memory);
      if constexpr (rule.before != Redistribution::none)
        exchange.template forward<rule.before>(
            communicator, value<T>(place.entering, rule.entering_width, rule.entering, batch, memory), in);
      const auto out = value<T>(place.out, rule.out_width, rule.rule.out, batch, memory);
      L::forward(site, Matrix<const T>(in), out);
      const auto leaving_value = value<T>(place.leaving, rule.leaving_width, rule.leaving, batch, memory);
      if constexpr (rule.after != Redistribution::none)
        exchange.template forward<rule.after>(communicator, out, leaving_value);
      if constexpr (rule.rule.out == Layout::partial && requires { L::forward_after_sum(site, leaving_value); })
        L::forward_after_sum(site, leaving_value);
    }
  }

  // A node that only redistributes: its layer's input and output are one value.
  template <int I, Scalar G, class Device, class TensorCommunicator>
  static void pass_node(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory,
                        TensorCommunicator& communicator, bool forward_pass) {
    constexpr NodeRule rule = rules[I];
    constexpr NodePlan place = plan.nodes[I];
    const Exchange<Tensor.degree, T, Device> exchange{batch, memory.exchange};
    if (forward_pass)
      exchange.template forward<rule.before>(
          communicator, value<T>(place.entering, rule.entering_width, rule.entering, batch, memory),
          value<T>(place.in, rule.in_width, rule.rule.in, batch, memory));
    else
      exchange.template backward<rule.before>(
          communicator, gradient(place.gradient_in, rule.in_width, rule.rule.in, batch, memory),
          gradient(place.gradient_entering, rule.entering_width, rule.entering, batch, memory));
  }

  template <int I, Scalar G, class Device, class TensorCommunicator>
  static void backward_node(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory,
                            TensorCommunicator& communicator) {
    constexpr NodeRule rule = rules[I];
    constexpr NodePlan place = plan.nodes[I];
    if constexpr (rule.kind == NodeTraits::Kind::fork) {
      ops::add(*batch.device,
               Matrix<const T>(gradient(place.gradient_leaving, rule.in_width, rule.rule.in, batch, memory)),
               Matrix<const T>(gradient(place.gradient_branch, rule.in_width, rule.rule.in, batch, memory)),
               gradient(place.gradient_entering, rule.in_width, rule.rule.in, batch, memory));
    } else if constexpr (rule.kind == NodeTraits::Kind::pass) {
      if constexpr (rule.before != Redistribution::none) pass_node<I>(batch, memory, communicator, false);
    } else if constexpr (rule.kind == NodeTraits::Kind::layer) {
      using L = Layer<I>;
      const Site<Unit, I, T, G, Device> site(batch, memory);
      const Exchange<Tensor.degree, T, Device> exchange{batch, memory.exchange};
      if constexpr (place.recomputes_input) forward_node<place.producer>(batch, memory, communicator);
      if constexpr (place.recomputes_own) forward_node<I>(batch, memory, communicator);
      const auto leaving_gradient = gradient(place.gradient_leaving, rule.leaving_width, rule.leaving, batch, memory);
      const auto out = gradient(place.gradient_out, rule.out_width, rule.rule.out, batch, memory);
      if constexpr (Options.splits_backward && detail::parameter_count<L>() > 0) {
        if constexpr (rule.after == Redistribution::scatter_sequence)
          batch.device->copy(leaving_gradient.flat(),
                             deferred(place.deferred_leaving, rule.leaving_width, rule.leaving, batch, memory).flat());
        if constexpr (rule.after != Redistribution::none)
          exchange.template backward<rule.after>(communicator, leaving_gradient, out);
        batch.device->copy(out.flat(),
                           deferred(place.deferred_out, rule.out_width, rule.rule.out, batch, memory).flat());
      } else {
        add_after_sum<I>(site, Matrix<const T>(leaving_gradient));
        if constexpr (rule.after != Redistribution::none)
          exchange.template backward<rule.after>(communicator, leaving_gradient, out);
        if constexpr (detail::parameter_count<L>() > 0) L::backward_weight(site, Matrix<const T>(out));
      }
      if constexpr (!nn::takes_tokens<L>) {
        const auto in = gradient(place.gradient_in, rule.in_width, rule.rule.in, batch, memory);
        if constexpr (!nn::identity_gradient<L>())
          L::backward_input(site, Matrix<const T>(out), in);
        else if (in.data() != out.data())
          batch.device->copy(out.flat(), in.flat());
        if constexpr (rule.before != Redistribution::none)
          exchange.template backward<rule.before>(
              communicator, in, gradient(place.gradient_entering, rule.entering_width, rule.entering, batch, memory));
      }
    }
  }

  template <int I, class SiteType>
  static void add_after_sum(const SiteType& site, Matrix<const T> leaving_gradient) {
    if constexpr (rules[I].rule.out == Layout::partial &&
                  requires { Layer<I>::backward_after_sum(site, leaving_gradient); })
      Layer<I>::backward_after_sum(site, leaving_gradient);
  }

  template <Scalar G, class Device>
  static Matrix<T> deferred(Extent offset, Index width, Layout layout, const MicroBatch<Device>& batch,
                            const UnitMemory<T, G>& memory) {
    return {reinterpret_cast<T*>(memory.deferred + offset.bytes(batch.row_capacity, batch.shard_capacity)),
            rows_in(layout, batch), width};
  }
  template <int I, Scalar G, class Device>
  static void add_deferred(const MicroBatch<Device>& batch, const UnitMemory<T, G>& memory) {
    if constexpr (detail::parameter_count<Layer<I>>() > 0) {
      constexpr NodeRule rule = rules[I];
      constexpr NodePlan place = plan.nodes[I];
      const Site<Unit, I, T, G, Device> site(batch, memory);
      add_after_sum<I>(
          site, Matrix<const T>(deferred(place.deferred_leaving, rule.leaving_width, rule.leaving, batch, memory)));
      Layer<I>::backward_weight(
          site, Matrix<const T>(deferred(place.deferred_out, rule.out_width, rule.rule.out, batch, memory)));
    }
  }

  // Where the branch that ends at node `join` began.
  static consteval std::size_t fork_of(int join) {
    int open = 0;
    for (int node = join; node > 0; --node) {
      const NodeTraits::Kind kind = rules[static_cast<std::size_t>(node)].kind;
      open += kind == NodeTraits::Kind::join ? 1 : kind == NodeTraits::Kind::fork ? -1 : 0;
      if (open == 0) return static_cast<std::size_t>(node);
    }
    return 0;
  }
  template <std::size_t... I>
  static consteval void check_nodes(std::index_sequence<I...>) {
    (check_node<static_cast<int>(I)>(), ...);
  }
  template <int I>
  static consteval void check_node() {
    using L = Layer<I>;
    constexpr NodeRule rule = rules[I];
    detail::require_redistribution<rule.entering, rule.rule.in, L>();
    if constexpr (rule.before == Redistribution::gather_features || rule.before == Redistribution::slice_features) {
      constexpr Index narrow = rule.in_width < rule.entering_width ? rule.in_width : rule.entering_width;
      constexpr Index wide = rule.in_width < rule.entering_width ? rule.entering_width : rule.in_width;
      detail::require_shares_side_by_side<rule.parts, Tensor.degree * narrow, wide>();
    }
    if constexpr (rule.kind == NodeTraits::Kind::join)
      detail::require_residual_width<rules[fork_of(I)].whole_in, rule.whole_in>();
    if constexpr (nn::Layer<L>) {
      if constexpr (nn::takes_tokens<L>) {
        constexpr bool begins_branch = I > 0 && rules[I > 0 ? I - 1 : 0].kind == NodeTraits::Kind::fork;
        detail::require_branch_of_features<L, begins_branch>();
        if constexpr (!begins_branch) detail::require_tokens_first<rule.parts, L>();
      }
      detail::require_width<rule.whole_before, rule.whole_in, L>();
      if constexpr (ChecksItself<L, Tensor, rules[I].rule>) L::template check<Tensor, rules[I].rule>();
    }
  }
};

}  // namespace dtrain::parallel
