// Composition of layers: Sequence, Residual, Repeat and Named, and their flattening into a list of nodes.
#pragma once

#include <array>
#include <type_traits>
#include <utility>

#include "dtrain/core/fixed_string.hpp"
#include "dtrain/nn/layer.hpp"

namespace dtrain::nn {

/// Layers one after another. A model is a `Sequence`; the pipeline cuts between its elements.
template <class... Layers>
struct Sequence {};

/// y = x + layers(x).
template <class... Layers>
struct Residual {};

/// `Count` copies of a block, each with parameters of its own; allowed as an element of the model's own sequence.
template <int Count, class Block>
struct Repeat {
  static_assert(Positive<Count>, "dtrain: a Repeat needs a count above 0");
};

/// Gives a layer the name under which its parameters are known. An unnamed layer is known by its index, as in
/// torch.nn.Sequential, below the nearest name around it.
template <FixedString Name, class L>
struct Named {
  static constexpr auto name = Name;
  using NamedLayer = L;
};

/// A leaf of the flattened model and the path of its name.
template <class L, FixedString Path>
struct Node {
  using Layer = L;
  static constexpr std::string_view path = Path.view();
};

/// Where a residual branch leaves the stream and where it is added to it; before each, the value is brought into the
/// stream's layout.
struct ToStream {};
struct Fork {};
struct Join {};

/// The leaves of a block in order, with `ToStream`, `Fork` and `Join` around residual branches.
template <class... Nodes>
struct NodeList {
  static constexpr int size = sizeof...(Nodes);
};

template <class... Left, class... Right>
constexpr NodeList<Left..., Right...> operator+(NodeList<Left...>, NodeList<Right...>) {
  return {};
}

namespace detail {

/// "a" and "b" joined to "a.b"; an empty part adds nothing.
template <FixedString Front, FixedString Back>
consteval auto join_path() {
  if constexpr (Front.view().empty()) {
    return Back;
  } else if constexpr (Back.view().empty()) {
    return Front;
  } else {
    constexpr std::size_t size = Front.view().size() + Back.view().size() + 2;
    char joined[size]{};
    std::size_t at = 0;
    for (const char character : Front.view()) joined[at++] = character;
    joined[at++] = '.';
    for (const char character : Back.view()) joined[at++] = character;
    return FixedString<size>(joined);
  }
}

/// The digits of an index.
template <std::size_t Number>
consteval auto index_name() {
  constexpr std::size_t digits = Number < 10 ? 1 : Number < 100 ? 2 : Number < 1000 ? 3 : 4;
  static_assert(Number < 10000, "dtrain: a sequence holds at most 10000 layers");
  char characters[digits + 1]{};
  std::size_t rest = Number;
  for (std::size_t d = digits; d-- > 0; rest /= 10) characters[d] = static_cast<char>('0' + rest % 10);
  return FixedString<digits + 1>(characters);
}

template <class L>
constexpr bool vanishes() {
  if constexpr (requires { L::vanishes; }) return L::vanishes;
  return false;
}

// Paths are types from here on: nvcc 13 matches no partial specialisation on strings as template arguments.
template <FixedString Text>
struct Path {
  static constexpr auto text = Text;
};
using EmptyPath = Path<FixedString<1>("")>;
template <class Front, class Back>
using Joined = Path<join_path<Front::text, Back::text>()>;
template <std::size_t Number>
using IndexPath = Path<index_name<Number>()>;

template <class L>
concept HasName = requires { typename L::NamedLayer; };

/// `Base` is the path of the nearest name around, `Indices` the indices since then.
template <class L, class Base, class Indices>
struct Flatten {
  static_assert(Layer<L>, "dtrain: this is not a layer: it lacks input, output, layouts, parameters or flops_per_row");
  using type = std::conditional_t<vanishes<L>(), NodeList<>, NodeList<Node<L, Joined<Base, Indices>::text>>>;
};

template <class Sequence, class Base, class Outer, class... Layers>
struct FlattenEach;
template <std::size_t... I, class Base, class Outer, class... Layers>
struct FlattenEach<std::index_sequence<I...>, Base, Outer, Layers...> {
  using type = decltype((NodeList<>{} + ... + typename Flatten<Layers, Base, Joined<Outer, IndexPath<I>>>::type{}));
};

template <class... Layers, class Base, class Indices>
struct Flatten<Sequence<Layers...>, Base, Indices>
    : FlattenEach<std::index_sequence_for<Layers...>, Base, Indices, Layers...> {};

template <class... Layers, class Base, class Indices>
struct Flatten<Residual<Layers...>, Base, Indices> {
  static constexpr auto path = Joined<Base, Indices>::text;
  using type = decltype(NodeList<Node<ToStream, path>, Node<Fork, path>>{} +
                        typename FlattenEach<std::index_sequence_for<Layers...>, Base, Indices, Layers...>::type{} +
                        NodeList<Node<ToStream, path>, Node<Join, path>>{});
};

template <HasName L, class Base, class Indices>
struct Flatten<L, Base, Indices> : Flatten<typename L::NamedLayer, Joined<Base, Path<L::name>>, EmptyPath> {};

template <class L>
inline constexpr bool is_repeat = false;
template <int Count, class Block>
inline constexpr bool is_repeat<Repeat<Count, Block>> = true;

template <int Count, class Block, class Base, class Indices>
struct Flatten<Repeat<Count, Block>, Base, Indices> {
  static_assert(!is_repeat<Repeat<Count, Block>>,
                "dtrain: a Repeat stands only in the model's own sequence, not inside another layer");
};

}  // namespace detail

/// An element of the model's own sequence: `Count` units of the same nodes. Names of repeated units carry their index:
/// `Name.3.path`; of others, `path`.
template <FixedString Name, bool Repeated, int Count, class Nodes>
struct Element {
  static constexpr std::string_view name = Name.view();
  static constexpr bool repeated = Repeated;
  static constexpr int count = Count;
  using nodes = Nodes;
};

template <class... Elements>
struct ElementList {
  static constexpr int size = sizeof...(Elements);
};

template <class... Left, class... Right>
constexpr ElementList<Left..., Right...> operator+(ElementList<Left...>, ElementList<Right...>) {
  return {};
}

namespace detail {

// An element is known by its name, or else by its index.
template <class L, class Name, class Index>
struct ElementOf {
  using nodes = typename Flatten<L, Name, Index>::type;
  using type = std::conditional_t<nodes::size == 0, ElementList<>,
                                  ElementList<Element<Joined<Name, Index>::text, false, 1, nodes>>>;
};
template <int Count, class Block, class Name, class Index>
struct ElementOf<Repeat<Count, Block>, Name, Index> {
  using nodes = typename Flatten<Block, EmptyPath, EmptyPath>::type;
  static_assert(nodes::size > 0, "dtrain: the block of a Repeat holds no layer");
  using type = ElementList<Element<Joined<Name, Index>::text, true, Count, nodes>>;
};
template <HasName L, class Base, class Index>
struct ElementOf<L, Base, Index> : ElementOf<typename L::NamedLayer, Joined<Base, Path<L::name>>, EmptyPath> {};

template <class Indices, class... Layers>
struct ElementsOf;
template <std::size_t... I, class... Layers>
struct ElementsOf<std::index_sequence<I...>, Layers...> {
  using type = decltype((ElementList<>{} + ... + typename ElementOf<Layers, EmptyPath, IndexPath<I>>::type{}));
};

template <class Model>
struct ModelElements {
  static_assert(!std::is_same_v<Model, Model>, "dtrain: a model is a Sequence of layers");
};
template <class... Layers>
struct ModelElements<Sequence<Layers...>> : ElementsOf<std::index_sequence_for<Layers...>, Layers...> {};

}  // namespace detail

/// The elements of a model, flattened; layers of which nothing is left are gone.
template <class Model>
using ModelElements = typename detail::ModelElements<Model>::type;

}  // namespace dtrain::nn
