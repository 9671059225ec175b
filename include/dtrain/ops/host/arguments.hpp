// How operations take what they read: views of const elements that convert from views of mutable ones.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::ops {

/// A matrix that is read. The element type of an operation is deduced from what it writes, never from these.
template <Scalar T>
using ReadMatrix = std::type_identity_t<Matrix<const T>>;

/// The element type of a view that is read or written: `T` of `Matrix<const T>` and of `Matrix<T>`. Operations that add
/// to gradients of parameters take the type of those from what they write, and their own from what they read.
template <class Element>
using ValueOf = std::remove_const_t<Element>;

/// A span that is read.
template <Scalar T>
using ReadSpan = std::type_identity_t<std::span<const T>>;

namespace detail {

/// Items per part such that a part is worth waking a thread for; `work` is the cost of an item in elementary steps.
constexpr Index grain_for(Index work) {
  // About 20 microseconds, several times what it takes to wake a thread.
  constexpr Index least = Index{1} << 16;
  return work <= 0 ? least : (least + work - 1) / work;
}

template <class A, class B>
void check_same_shape(std::string_view who, const Matrix<A>& left, const Matrix<B>& right) {
  if (left.rows() != right.rows() || left.columns() != right.columns())
    throw Error(concatenate(who, ": a ", left.rows(), "x", left.columns(), " matrix stands beside a ", right.rows(),
                            "x", right.columns(), " one; they must have the same shape."));
}

inline void check_length(std::string_view who, std::string_view what, std::size_t actual, Index expected) {
  if (static_cast<Index>(actual) != expected)
    throw Error(concatenate(who, ": ", what, " has ", actual, " elements, ", expected, " are needed."));
}

}  // namespace detail
}  // namespace dtrain::ops
