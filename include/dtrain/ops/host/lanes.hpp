// Loops over rows in the shape that compilers vectorise without being allowed to reorder floating-point sums.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

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
template <class A>
[[gnu::always_inline]] inline A total(Lanes<A>& lanes) {
  for (std::size_t width = lanes.size() / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
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

/// The largest `term(i)`, minus infinity for none. NaN terms are passed over.
template <class A, class Term>
[[gnu::always_inline]] inline A lane_max(Index count, Term term) {
  Lanes<A> lanes;
  lanes.fill(-std::numeric_limits<A>::infinity());
  const auto raise = [](A& largest, A value) { largest = value > largest ? value : largest; };
  Index i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (Index lane = 0; lane < lane_count; ++lane) raise(lanes[static_cast<std::size_t>(lane)], term(i + lane));
  for (Index lane = 0; lane < count - i; ++lane) raise(lanes[static_cast<std::size_t>(lane)], term(i + lane));
  A largest = lanes[0];
  for (const A lane : lanes) raise(largest, lane);
  return largest;
}

/// out[i] = f(in0[i], in1[i], ...) where `out` may be one of the inputs.
template <Scalar T, class F, class... Inputs>
[[gnu::always_inline]] inline void map_row(Index count, T* out, F f, const Inputs*... in) {
  DTRAIN_INDEPENDENT_ITERATIONS
  for (Index i = 0; i < count; ++i) out[i] = static_cast<T>(f(static_cast<Accumulator<T>>(in[i])...));
}

}  // namespace dtrain::ops::detail
