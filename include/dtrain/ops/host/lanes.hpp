// Loops over rows in the shape that compilers vectorise without being allowed to reorder floating-point sums.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dtrain/core/scalar.hpp"

// Ahead of a loop whose iterations touch the same elements only of the same index. GCC compares the ends of the arrays
// instead, and so would run every in-place loop element by element.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define DTRAIN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#else
#define DTRAIN_INDEPENDENT_ITERATIONS
#endif

namespace dtrain::ops::detail {

// One AVX-512 register of floats, two of AVX2: independent sums that SIMD keeps side by side.
inline constexpr Index lane_count = 16;

template <class A>
using Lanes = std::array<A, static_cast<std::size_t>(lane_count)>;

/// Adds the lanes pairwise, always in the same order.
template <std::size_t First = 0, std::size_t Count = static_cast<std::size_t>(lane_count), class A>
[[gnu::always_inline]] inline A total(const Lanes<A>& lanes) {
  if constexpr (Count == 1)
    return lanes[First];
  else
    return total<First, Count / 2>(lanes) + total<First + Count / 2, Count / 2>(lanes);
}

/// Sum of `term(i)` for i in [0, count), in lanes of type A.
template <class A, class Term>
[[gnu::always_inline]] inline A lane_sum(Index count, Term term) {
  Lanes<A> lanes{};
  Index i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (Index lane = 0; lane < lane_count; ++lane) lanes[static_cast<std::size_t>(lane)] += term(i + lane);
  for (Index lane = 0; lane < count - i; ++lane) lanes[static_cast<std::size_t>(lane)] += term(i + lane);
  return total(lanes);
}

/// The bits of a float or double as an integer of the same order, and back: the map is its own inverse.
template <class Integer>
[[gnu::always_inline]] constexpr Integer reorder(Integer bits) {
  return bits ^ ((bits >> (8 * sizeof(Integer) - 1)) & std::numeric_limits<Integer>::max());
}

/// The largest `term(i)`, minus infinity for none. Maxima of integers may be reordered, and so are vectorised, while
/// those of floats may not; a NaN counts as larger than infinity or as smaller than minus infinity, by its sign.
template <class A, class Term>
[[gnu::always_inline]] inline A lane_max(Index count, Term term) {
  using Integer = std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t>;
  Integer largest = reorder(std::bit_cast<Integer>(-std::numeric_limits<A>::infinity()));
  for (Index i = 0; i < count; ++i) largest = std::max(largest, reorder(std::bit_cast<Integer>(term(i))));
  return std::bit_cast<A>(reorder(largest));
}

/// out[i] = f(in0[i], in1[i], ...) where `out` may be one of the inputs.
template <Scalar T, class F, class... Inputs>
[[gnu::always_inline]] inline void map_row(Index count, T* out, F f, const Inputs*... in) {
  DTRAIN_INDEPENDENT_ITERATIONS
  for (Index i = 0; i < count; ++i) out[i] = static_cast<T>(f(static_cast<Accumulator<T>>(in[i])...));
}

/// to += value, in the wider of the two types, rounded once.
template <Scalar G, class A>
[[gnu::always_inline]] constexpr void add_to(G& to, A value) {
  using Sum = std::common_type_t<Accumulator<G>, A>;
  to = static_cast<G>(
      static_cast<Accumulator<G>>(static_cast<Sum>(static_cast<Accumulator<G>>(to)) + static_cast<Sum>(value)));
}

/// to[i] += from[i], where `to` may be of another type than `from`; they are different memory.
template <Scalar G, Scalar T>
[[gnu::always_inline]] inline void add_row(Index count, G* to, const T* from) {
  DTRAIN_INDEPENDENT_ITERATIONS
  for (Index i = 0; i < count; ++i) add_to(to[i], static_cast<Accumulator<T>>(from[i]));
}

}  // namespace dtrain::ops::detail
