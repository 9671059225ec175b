// A model lowered for a tensor axis: its units in order, their tables of sizes, ties and places to cut.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "dtrain/core/text.hpp"
#include "dtrain/parallel/parameter_name.hpp"
#include "dtrain/parallel/unit.hpp"

namespace dtrain::parallel {

/// One element of the model's sequence: `count` units of one type.
struct ElementTable {
  int first_unit = 0;
  int count = 1;
  bool repeated = false;
  Index parameter_size = 0;  ///< elements per unit
  Extent output;
  Extent saved;
  Extent deferred;
  Extent transient;
  Extent exchange;
  Extent gradient_slot;
  int gradient_slots = 0;
  Index entering_width = 0;
  Index leaving_width = 0;
  Layout entering = Layout::invariant;
  Layout leaving = Layout::invariant;
  bool cuttable = false;  ///< the pipeline may cut behind its units
};

/// A parameter that uses the storage of another element's parameter.
struct Tie {
  int user = -1;     ///< element that reads it
  int owner = -1;    ///< element that holds it
  Index offset = 0;  ///< in the owner's unit
  Index size = 0;    ///< elements on one rank
};

/// A tie names a parameter of another element of the model's own sequence.
template <class User, bool Found>
concept TieFound = Found;

/// A tied parameter has the shape of the parameter whose storage it uses.
template <Index Rows, Index Columns, Index OwnerRows, Index OwnerColumns>
concept TiedShapesMatch = bool(Rows == OwnerRows && Columns == OwnerColumns);

/// The backward pass reaches the owner of a tied parameter last, when all its gradient is there.
template <class User, bool OwnerFirst>
concept TieOwnerComesFirst = OwnerFirst;

/// Elements `First` and `Second` of the model hold a parameter of the same name; both are -1 where no two do.
template <int First, int Second>
concept NamesDiffer = bool(First < 0 && Second < 0);

/// A repeated block gives what it takes, in layout and in width.
template <Layout Takes, Layout Gives, Index WidthTaken, Index WidthGiven>
concept BlockRepeats = bool(Takes == Gives && WidthTaken == WidthGiven);

namespace detail {

template <class L>
constexpr nn::Features first_features() {
  if constexpr (nn::Layer<L>) return L::input;
  return {};
}

template <class... Nodes>
constexpr nn::Features features_taken(nn::NodeList<Nodes...>) {
  nn::Features features{};
  ((features = features.count == 0 ? first_features<typename Nodes::Layer>() : features), ...);
  return features;
}

template <class... Nodes>
constexpr bool starts_with_tokens(nn::NodeList<Nodes...>) {
  using First = std::tuple_element_t<0, std::tuple<typename Nodes::Layer...>>;
  if constexpr (nn::Layer<First>) return nn::takes_tokens<First>;
  return false;
}

// Whether one of the layers uses another parameter's storage.
template <class... Nodes>
constexpr bool has_tie(nn::NodeList<Nodes...>) {
  bool found = false;
  const auto look = [&]<class L>(std::type_identity<L>) {
    if constexpr (nn::Layer<L>)
      for (const nn::Parameter& parameter : L::parameters(nn::LayoutRule{})) found = found || !parameter.tie.empty();
  };
  (look(std::type_identity<typename Nodes::Layer>{}), ...);
  return found;
}

// "path.name" == whole, without building a string.
constexpr bool is_named(std::string_view whole, std::string_view path, std::string_view name) {
  return whole.size() == path.size() + 1 + name.size() && whole.starts_with(path) && whole[path.size()] == '.' &&
         whole.ends_with(name);
}

template <class... Nodes>
constexpr void walk_nodes(Walk& walk, nn::NodeList<Nodes...>) {
  (walk.template step<typename Nodes::Layer>(), ...);
}

}  // namespace detail

/// The lowered model. `T` is the type of parameters and activations.
template <class Elements, TensorAxis Tensor, Scalar T, UnitOptions Options>
class LoweredElements;

template <class... Elements, TensorAxis Tensor, Scalar T, UnitOptions Options>
class LoweredElements<nn::ElementList<Elements...>, Tensor, T, Options> {
  static_assert(sizeof...(Elements) > 0, "dtrain: a model needs at least one layer");
  template <int E>
  using Element = std::tuple_element_t<static_cast<std::size_t>(E), std::tuple<Elements...>>;

  struct Boundary {
    Layout layout;
    nn::Features features;
  };

 public:
  static constexpr int elements = sizeof...(Elements);
  static constexpr TensorAxis tensor = Tensor;
  static constexpr UnitOptions unit_options = Options;
  /// Whether the model reads token ids; otherwise it reads rows of features.
  static constexpr bool takes_tokens = detail::starts_with_tokens(typename Element<0>::nodes{});

 private:
  static constexpr std::array<Boundary, elements + 1> boundaries = [] {
    using FirstNodes = typename Element<0>::nodes;
    detail::Walk walk{Tensor, takes_tokens ? Layout::invariant : Tensor.stream(),
                      takes_tokens ? nn::Features{} : detail::features_taken(FirstNodes{})};
    std::array<Boundary, elements + 1> result{};
    std::size_t at = 0;
    result[at] = {walk.layout, walk.features};
    ((detail::walk_nodes(walk, typename Elements::nodes{}), result[++at] = {walk.layout, walk.features}), ...);
    return result;
  }();

 public:
  template <int E>
  using UnitOf = Unit<typename Element<E>::nodes, Tensor, boundaries[E].layout, boundaries[E].features, T,
                      Options.of_unit(E == elements - 1)>;

 private:
  template <int E>
  static constexpr ElementTable describe(int first) {
    using U = UnitOf<E>;
    return {.first_unit = first,
            .count = Element<E>::count,
            .repeated = Element<E>::repeated,
            .parameter_size = U::parameter_size,
            .output = U::plan.output,
            .saved = U::plan.saved,
            .deferred = U::plan.deferred,
            .transient = U::plan.transient,
            .exchange = U::plan.exchange,
            .gradient_slot = U::plan.gradient_slot,
            .gradient_slots = U::plan.gradient_slots,
            .entering_width = U::entering_width,
            .leaving_width = U::leaving_width,
            .entering = boundaries[E].layout,
            .leaving = boundaries[E + 1].layout,
            .cuttable = boundaries[E + 1].layout == Tensor.stream()};
  }

  // Where the parameter of this path lies: its element, and its index among the element's parameters.
  static constexpr std::pair<int, int> find_parameter(std::string_view whole) {
    std::pair<int, int> found{-1, -1};
    const auto search = [&]<std::size_t E>(std::integral_constant<std::size_t, E>) {
      using U = UnitOf<static_cast<int>(E)>;
      constexpr int count = Element<static_cast<int>(E)>::repeated ? 0 : U::parameter_count;
      for (int p = 0; p < count; ++p) {
        const UnitParameter& candidate = U::parameters[static_cast<std::size_t>(p)];
        const std::string_view path = U::paths[static_cast<std::size_t>(candidate.node)];
        if (!candidate.tied() && detail::is_named(whole, path, candidate.parameter.name))
          found = std::pair<int, int>(static_cast<int>(E), p);
      }
    };
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (search(std::integral_constant<std::size_t, E>{}), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    return found;
  }

  template <int E>
  static constexpr void add_tie(std::span<Tie> result, std::size_t& at) {
    using U = UnitOf<E>;
    if constexpr (U::tied_parameter >= 0) {
      constexpr auto& tied = U::parameters[static_cast<std::size_t>(U::tied_parameter)];
      constexpr auto found = find_parameter(tied.parameter.tie);
      if constexpr (found.first >= 0) {
        constexpr auto& owner = UnitOf<found.first>::parameters[static_cast<std::size_t>(found.second)];
        result[at++] = {E, found.first, owner.offset, owner.parameter.local_size(Tensor.degree)};
      } else {
        ++at;
      }
    }
  }

 public:
  template <int E>
  static constexpr std::string_view element_name = Element<E>::name;

  /// Layout and width of what the model gives.
  static constexpr Layout leaving = boundaries[elements].layout;
  static constexpr nn::Features leaving_features = boundaries[elements].features;
  static constexpr Index input_width = takes_tokens ? 0 : boundaries[0].features.whole();

  static constexpr std::array<ElementTable, elements> table = [] {
    std::array<ElementTable, elements> result{};
    int first = 0;
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      ((result[E] = describe<static_cast<int>(E)>(first), first += Element<static_cast<int>(E)>::count), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    return result;
  }();
  static constexpr int units = table[elements - 1].first_unit + table[elements - 1].count;

  /// The element of a unit.
  static constexpr int element_of(int unit) {
    int element = 0;
    while (element + 1 < elements && table[static_cast<std::size_t>(element + 1)].first_unit <= unit) ++element;
    return element;
  }

  static constexpr int tie_count = (0 + ... + (detail::has_tie(typename Elements::nodes{}) ? 1 : 0));
  /// The ties between elements.
  static constexpr std::array<Tie, static_cast<std::size_t>(tie_count)> ties = [] {
    std::array<Tie, static_cast<std::size_t>(tie_count)> result{};
    std::size_t at = 0;
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (add_tie<static_cast<int>(E)>(result, at), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    return result;
  }();

  /// FLOPs of a forward pass per row, by element, for one unit.
  static constexpr std::array<double, elements> flops_per_row(Index context) {
    return [&]<std::size_t... E>(std::index_sequence<E...>) {
      return std::array<double, elements>{UnitOf<static_cast<int>(E)>::flops_per_row(context)...};
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
  }
  /// Where each element's constants begin, in elements, and behind the last where they end. They depend on the context
  /// alone, so that repeated units share them.
  static constexpr std::array<Index, elements + 1> constants_offsets(Index context) {
    return [&]<std::size_t... E>(std::index_sequence<E...>) {
      std::array<Index, elements + 1> offsets{};
      ((offsets[E + 1] =
            offsets[E] + round_up(UnitOf<static_cast<int>(E)>::constants_size(context), parameter_alignment)),
       ...);
      return offsets;
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
  }
  /// The longest context the model takes; 0: any.
  static constexpr Index max_context = [] {
    Index least = 0;
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      ((least = UnitOf<static_cast<int>(E)>::max_context > 0 &&
                        (least == 0 || UnitOf<static_cast<int>(E)>::max_context < least)
                    ? UnitOf<static_cast<int>(E)>::max_context
                    : least),
       ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    return least;
  }();

  /// The name of a unit as far as its nodes' paths: "blocks.3." or "".
  static std::string unit_prefix(int unit) {
    const int element = element_of(unit);
    const ElementTable& entry = table[static_cast<std::size_t>(element)];
    if (!entry.repeated) return {};
    constexpr std::array<std::string_view, elements> names{Elements::name...};
    return concatenate(names[static_cast<std::size_t>(element)], ".", unit - entry.first_unit, ".");
  }

  /// Every refusal of the lowering, in one sentence each.
  static consteval bool check() {
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (check_element<static_cast<int>(E)>(), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    static_assert(NamesDiffer<same_names.first, same_names.second>,
                  "dtrain: two parameters of a model have the same name");
    return true;
  }

 private:
  static constexpr int parameter_count = [] {
    return []<std::size_t... E>(std::index_sequence<E...>) {
      return (0 + ... + UnitOf<static_cast<int>(E)>::parameter_count);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
  }();
  // Two elements that hold parameters of one name. Names in which no index stands for many are compared by hashes.
  static constexpr std::pair<int, int> same_names = [] {
    std::array<std::pair<ParameterName, int>, static_cast<std::size_t>(parameter_count)> names{};
    std::array<std::pair<std::uint64_t, int>, static_cast<std::size_t>(parameter_count)> hashes{};
    std::size_t count = 0;
    const auto add = [&]<std::size_t E>(std::integral_constant<std::size_t, E>) {
      using U = UnitOf<static_cast<int>(E)>;
      constexpr bool repeated = table[E].repeated;
      for (const UnitParameter& described : U::parameters) {
        if (described.tied()) continue;
        const ParameterName name{.element = repeated ? element_name<static_cast<int>(E)> : std::string_view{},
                                 .count = repeated ? table[E].count : 0,
                                 .path = U::paths[static_cast<std::size_t>(described.node)],
                                 .parameter = described.parameter.name};
        const std::uint64_t base = hash_name(".", hash_name(name.path, hash_name(".", hash_name(name.element))));
        hashes[count] = {hash_name(name.parameter, base), static_cast<int>(E)};
        names[count++] = {name, static_cast<int>(E)};
      }
    };
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (add(std::integral_constant<std::size_t, E>{}), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(elements)>{});
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count && names[i].first.count > 0; ++j)
        if (names[i].second != names[j].second && share_a_name(names[i].first, names[j].first))
          return std::pair{std::min(names[i].second, names[j].second), std::max(names[i].second, names[j].second)};
    std::sort(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(count));
    for (std::size_t i = 1; i < count; ++i)
      if (hashes[i - 1].first == hashes[i].first) return std::pair{hashes[i - 1].second, hashes[i].second};
    return std::pair{-1, -1};
  }();

  template <int E>
  static consteval void check_element() {
    using U = UnitOf<E>;
    static_assert(U::check());
    if constexpr (Element<E>::repeated)
      static_assert(BlockRepeats<boundaries[E].layout, boundaries[E + 1].layout, boundaries[E].features.whole(),
                                 boundaries[E + 1].features.whole()>,
                    "dtrain: a repeated block does not give the width and layout that it takes");
    if constexpr (U::tied_parameter >= 0) {
      constexpr auto& tied = U::parameters[static_cast<std::size_t>(U::tied_parameter)];
      constexpr auto found = find_parameter(tied.parameter.tie);
      static_assert(TieFound<typename U::template Layer<tied.node>, (found.first >= 0 && !Element<E>::repeated)>,
                    "dtrain: a tied parameter names no parameter of the model's own sequence, or is itself repeated");
      if constexpr (found.first >= 0) {
        static_assert(TieOwnerComesFirst<typename U::template Layer<tied.node>, (found.first < E)>,
                      "dtrain: a tied parameter names a parameter of a later layer; let the first layer own it and the "
                      "later one name it");
        constexpr auto& owner = UnitOf<found.first>::parameters[static_cast<std::size_t>(found.second)].parameter;
        static_assert(
            TiedShapesMatch<tied.parameter.local_rows(Tensor.degree), tied.parameter.local_columns(Tensor.degree),
                            owner.local_rows(Tensor.degree), owner.local_columns(Tensor.degree)>,
            "dtrain: a tied parameter has another shape than the parameter that it names");
      }
    }
  }
};

namespace detail {
// A class, because g++ 12 crashes on an alias whose argument of class type depends on a template parameter.
template <class Model, class TensorPolicy, class T, class Options>
struct Lower {
  static constexpr TensorAxis axis = TensorPolicy::axis;
  static constexpr UnitOptions options = Options::value;
  using type = LoweredElements<nn::ModelElements<Model>, axis, T, options>;
};
struct PlainUnits {
  static constexpr UnitOptions value{};
};
}  // namespace detail

/// `Model` lowered for the tensor axis of `TensorPolicy`, in element type `T`; `Options::value` is a `UnitOptions`.
template <class Model, class TensorPolicy, class T, class Options = detail::PlainUnits>
using LoweredModel = typename detail::Lower<Model, TensorPolicy, T, Options>::type;

}  // namespace dtrain::parallel
