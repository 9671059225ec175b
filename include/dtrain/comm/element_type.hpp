// What a communicator knows of the elements it moves: their name and their size.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "dtrain/core/scalar.hpp"

namespace dtrain::comm {

/// Anything that can be moved by copying its bytes.
template <class T>
concept Movable = std::is_trivially_copyable_v<T> && !std::is_const_v<T>;

/// What collectives can add, multiply and compare: the scalars and the integers.
template <class T>
concept Reducible = Scalar<T> || (std::integral<T> && !std::same_as<T, bool> && !std::is_const_v<T>);

/// Name and size of an element. Two calls agree on their type when both are equal; types without a name
/// ("bytes") are told apart by size alone.
struct ElementType {
  std::string_view name;
  std::size_t size = 0;
  friend constexpr bool operator==(const ElementType&, const ElementType&) = default;
};

namespace detail {
template <class T>
constexpr std::string_view element_name() {
  if constexpr (scalar_name<T>() != "bytes" || !std::integral<T> || std::same_as<T, bool>) {
    return scalar_name<T>();
  } else {
    constexpr std::string_view signed_names[] = {"int8", "int16", "int32", "int64"};
    constexpr std::string_view unsigned_names[] = {"uint8", "uint16", "uint32", "uint64"};
    constexpr std::size_t row = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? signed_names[row] : unsigned_names[row];
  }
}
}  // namespace detail

/// The description of `T`.
template <Movable T>
constexpr ElementType element_type() {
  return {detail::element_name<T>(), sizeof(T)};
}

}  // namespace dtrain::comm
