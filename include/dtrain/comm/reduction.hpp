// The reductions of collectives, and the one loop that computes them: in rank order, rounded once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "dtrain/comm/element_type.hpp"

namespace dtrain::comm {

/// How elements of different ranks become one. There is no average: gradients are divided by the global token count
/// before they are summed, and a second division is a classic silent fault.
enum class Reduction : std::uint8_t { sum, product, minimum, maximum };

/// The name of a reduction, as errors print it.
constexpr std::string_view reduction_name(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "product", "minimum", "maximum"};
  return names[static_cast<std::size_t>(reduction)];
}

namespace detail {

/// The type a reduction over `T` runs in: float for the 16-bit types, so that 512 ones make 512 and not 256.
template <class T>
struct ReductionType {
  using type = T;
};
template <Scalar T>
struct ReductionType<T> {
  using type = Accumulator<T>;
};

/// One step of a reduction. Integers wrap; a NaN of either side survives minimum and maximum.
template <Reduction Operation, class T>
constexpr T combine(T left, T right) {
  if constexpr (Operation == Reduction::maximum) {
    return (right > left || right != right) ? right : left;
  } else if constexpr (Operation == Reduction::minimum) {
    return (right < left || right != right) ? right : left;
  } else if constexpr (std::integral<T>) {
    using Wide = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    const Wide a = static_cast<Wide>(left);
    const Wide b = static_cast<Wide>(right);
    return static_cast<T>(Operation == Reduction::sum ? static_cast<Wide>(a + b) : static_cast<Wide>(a * b));
  } else {
    return Operation == Reduction::sum ? left + right : left * right;
  }
}

/// Sums `count` elements that start `source` elements into each source and writes them, `destination` elements
/// in, to every destination. `Count` is a number or an integral_constant, so that whole blocks have a constant trip.
template <class T, class Count>
void sum_block(std::span<const std::byte* const> sources, Index source, std::span<std::byte* const> destinations,
               Index destination, Count count) {
  using Value = typename ReductionType<T>::type;
  const auto at = [&](std::size_t rank) { return reinterpret_cast<const T*>(sources[rank]) + source; };
  T result[512];
  if constexpr (std::is_same_v<T, Value>) {
    const T* first = at(0);
    if (sources.size() == 1) {
      for (Index i = 0; i < count; ++i) result[i] = first[i];
    } else {
      const T* second = at(1);
      for (Index i = 0; i < count; ++i) result[i] = combine<Reduction::sum>(first[i], second[i]);
    }
    for (std::size_t rank = 2; rank < sources.size(); ++rank) {
      const T* next = at(rank);
      for (Index i = 0; i < count; ++i) result[i] = combine<Reduction::sum>(result[i], next[i]);
    }
  } else {
    Value sum[512];
    const T* first = at(0);
    for (Index i = 0; i < count; ++i) sum[i] = static_cast<Value>(first[i]);
    for (std::size_t rank = 1; rank < sources.size(); ++rank) {
      const T* next = at(rank);
      for (Index i = 0; i < count; ++i) sum[i] = combine<Reduction::sum>(sum[i], static_cast<Value>(next[i]));
    }
    for (Index i = 0; i < count; ++i) result[i] = T(sum[i]);
  }
  for (std::byte* const base : destinations) {
    T* out = reinterpret_cast<T*>(base) + destination;
    std::copy_n(result, static_cast<Index>(count), out);
  }
}

template <class T>
void sum_range(std::span<const std::byte* const> sources, Index source, std::span<std::byte* const> destinations,
               Index destination, Index count) {
  using Block = std::integral_constant<Index, 512>;
  Index done = 0;
  for (; done + Block::value <= count; done += Block::value)
    sum_block<T>(sources, source + done, destinations, destination + done, Block{});
  if (done < count) sum_block<T>(sources, source + done, destinations, destination + done, count - done);
}

template <class T>
T combine(Reduction reduction, T left, T right) {
  switch (reduction) {
    case Reduction::product:
      return combine<Reduction::product>(left, right);
    case Reduction::minimum:
      return combine<Reduction::minimum>(left, right);
    case Reduction::maximum:
      return combine<Reduction::maximum>(left, right);
    case Reduction::sum:
      break;
  }
  return combine<Reduction::sum>(left, right);
}

/// The other reductions, which take few numbers in training: one loop for all of them compiles in a third of the time.
template <class T>
[[gnu::cold]] void reduce_by_element(std::span<const std::byte* const> sources, Index source,
                                     std::span<std::byte* const> destinations, Index destination, Index count,
                                     Reduction reduction) {
  using Value = typename ReductionType<T>::type;
  for (Index i = 0; i < count; ++i) {
    const auto at = [&](std::size_t rank) {
      return static_cast<Value>(reinterpret_cast<const T*>(sources[rank])[source + i]);
    };
    Value result = at(0);
    for (std::size_t rank = 1; rank < sources.size(); ++rank) result = combine(reduction, result, at(rank));
    for (std::byte* const base : destinations) reinterpret_cast<T*>(base)[destination + i] = static_cast<T>(result);
  }
}

}  // namespace detail

/// The type of `reduce_elements`, with the element type forgotten.
using ReduceFunction = void (*)(std::span<const std::byte* const> sources, Index source_offset,
                                std::span<std::byte* const> destinations, Index destination_offset, Index count,
                                Reduction reduction);

/// Reduces elements [source_offset, source_offset + count) of all sources, ((s0 + s1) + s2) + ..., and writes the
/// result at `destination_offset` of every destination. 16-bit types are summed in float and rounded once. A
/// destination may be a source as long as the two offsets address the same memory. Offsets and count are in elements.
template <Reducible T>
void reduce_elements(std::span<const std::byte* const> sources, Index source_offset,
                     std::span<std::byte* const> destinations, Index destination_offset, Index count,
                     Reduction reduction) {
  if (reduction == Reduction::sum)
    detail::sum_range<T>(sources, source_offset, destinations, destination_offset, count);
  else
    detail::reduce_by_element<T>(sources, source_offset, destinations, destination_offset, count, reduction);
}

}  // namespace dtrain::comm
