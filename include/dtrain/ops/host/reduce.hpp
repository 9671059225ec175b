// Sums and elementwise arithmetic over spans: norms, scaling, addition, column sums, casts.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

namespace detail {

// Sums are taken over blocks of this many elements whatever the number of threads, so that a norm does not depend on
// how many threads computed it.
inline constexpr Index sum_block = 4096;

template <Scalar T>
double block_sum_of_squares(const T* values, Index count) {
  constexpr Index lanes = 8;
  std::array<double, lanes> sums{};
  Index i = 0;
  for (; i + lanes <= count; i += lanes)
    for (Index lane = 0; lane < lanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace detail

/// The sum of the squares of all elements, in double. The result does not depend on the number of threads.
template <Scalar T>
[[nodiscard]] double sum_of_squares(Host& device, std::span<const T> values) {
  const auto count = static_cast<Index>(values.size());
  const Index blocks = (count + detail::sum_block - 1) / detail::sum_block;
  if (blocks == 0) return 0.0;
  auto* const sums = reinterpret_cast<double*>(device.scratch(0, blocks * static_cast<Index>(sizeof(double))));
  device.parallel_for(blocks, 8, [&](Range range) {
    for (Index block = range.begin; block < range.end; ++block) {
      const Index begin = block * detail::sum_block;
      sums[block] = detail::block_sum_of_squares(values.data() + begin, std::min(detail::sum_block, count - begin));
    }
  });
  double sum = 0.0;
  for (Index block = 0; block < blocks; ++block) sum += sums[block];
  return sum;
}
template <Scalar T>
[[nodiscard]] double sum_of_squares(Host& device, std::span<T> values) {
  return sum_of_squares(device, std::span<const T>(values));
}

/// Whether no element is infinite or NaN.
template <Scalar T>
[[nodiscard]] bool all_finite(Host& device, std::span<const T> values) {
  // x * 0 is 0 for finite x and NaN otherwise: a sum that stays 0 needs no branch per element.
  const auto count = static_cast<Index>(values.size());
  const Index parts = device.parts(count, detail::grain_for(1));
  if (parts == 0) return true;
  device.reserve_scratch(parts, 64);
  device.parallel_for(count, detail::grain_for(1), [&](Range range, Index part) {
    constexpr Index lanes = 16;
    std::array<Accumulator<T>, lanes> sums{};
    Index i = range.begin;
    for (; i + lanes <= range.end; i += lanes)
      for (Index lane = 0; lane < lanes; ++lane)
        sums[static_cast<std::size_t>(lane)] +=
            static_cast<Accumulator<T>>(values[static_cast<std::size_t>(i + lane)]) * 0;
    for (; i < range.end; ++i) sums[0] += static_cast<Accumulator<T>>(values[static_cast<std::size_t>(i)]) * 0;
    bool finite = true;
    for (const auto sum : sums) finite = finite && sum == 0;
    *reinterpret_cast<bool*>(device.scratch(part, 64)) = finite;
  });
  bool finite = true;
  for (Index part = 0; part < parts; ++part) finite = finite && *reinterpret_cast<bool*>(device.scratch(part, 64));
  return finite;
}
template <Scalar T>
[[nodiscard]] bool all_finite(Host& device, std::span<T> values) {
  return all_finite(device, std::span<const T>(values));
}

/// values *= factor.
template <Scalar T>
void scale(Host& device, std::span<T> values, Accumulator<T> factor) {
  device.parallel_for(static_cast<Index>(values.size()), detail::grain_for(1), [&](Range range) {
    T* const to = values.data();
    const Accumulator<T> by = factor;
    for (Index i = range.begin; i < range.end; ++i) to[i] = static_cast<T>(static_cast<Accumulator<T>>(to[i]) * by);
  });
}

/// out = x + y, elementwise; `out` may be `x` or `y`.
template <Scalar T>
void add(Host& device, ReadMatrix<T> x, ReadMatrix<T> y, Matrix<T> out) {
  detail::check_same_shape("add", x, out);
  detail::check_same_shape("add", y, out);
  device.parallel_for(out.rows(), detail::grain_for(out.columns()), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const left = x.row(r);
      const T* const right = y.row(r);
      T* const to = out.row(r);
      detail::map_row(out.columns(), to, [](auto a, auto b) { return a + b; }, left, right);
    }
  });
}
template <Scalar T>
void add(Host& device, ReadSpan<T> x, ReadSpan<T> y, std::span<T> out) {
  detail::check_length("add", "the left operand", x.size(), static_cast<Index>(out.size()));
  detail::check_length("add", "the right operand", y.size(), static_cast<Index>(out.size()));
  device.parallel_for(static_cast<Index>(out.size()), detail::grain_for(1), [&](Range range) {
    const T* const left = x.data() + range.begin;
    const T* const right = y.data() + range.begin;
    T* const to = out.data() + range.begin;
    detail::map_row(range.size(), to, [](auto a, auto b) { return a + b; }, left, right);
  });
}

/// to += from, elementwise; `from` may be of another type than `to`.
template <class F, Scalar T>
void accumulate(Host& device, std::span<F> from, std::span<T> to) {
  detail::check_length("accumulate", "the source", from.size(), static_cast<Index>(to.size()));
  device.parallel_for(static_cast<Index>(to.size()), detail::grain_for(1), [&](Range range) {
    detail::add_row(range.size(), to.data() + range.begin, from.data() + range.begin);
  });
}
template <Scalar T>
void accumulate(Host& device, ReadMatrix<T> from, Matrix<T> to) {
  add(device, from, ReadMatrix<T>(to), to);
}

/// to = from, converted: to a 16-bit type by rounding to nearest even, otherwise as the language converts.
template <Scalar From, Scalar To>
void cast(Host& device, std::span<const From> from, std::span<To> to) {
  detail::check_length("cast", "the source", from.size(), static_cast<Index>(to.size()));
  device.parallel_for(static_cast<Index>(to.size()), detail::grain_for(1), [&](Range range) {
    const From* const source = from.data();
    To* const target = to.data();
    for (Index i = range.begin; i < range.end; ++i)
      target[i] = static_cast<To>(static_cast<Accumulator<To>>(static_cast<Accumulator<From>>(source[i])));
  });
}
template <Scalar From, Scalar To>
void cast(Host& device, std::span<From> from, std::span<To> to) {
  cast(device, std::span<const From>(from), to);
}

/// sums[c] += sum over r of values[r, c]. Columns are shared out over threads, so the order of each sum is fixed.
template <class D, Scalar G>
void accumulate_column_sums(Host& device, Matrix<D> values, std::span<G> sums) {
  using T = ValueOf<D>;
  detail::check_length("accumulate_column_sums", "the result", sums.size(), values.columns());
  constexpr Index tile = 64;
  const Index tiles = (values.columns() + tile - 1) / tile;
  device.parallel_for(tiles, detail::grain_for(values.rows() * tile), [&](Range range) {
    for (Index t = range.begin; t < range.end; ++t) {
      const Index first = t * tile;
      const Index width = std::min(tile, values.columns() - first);
      std::array<Accumulator<T>, tile> sum{};
      if (width == tile) {
        for (Index r = 0; r < values.rows(); ++r) {
          const T* const row = values.row(r) + first;
          for (Index c = 0; c < tile; ++c) sum[static_cast<std::size_t>(c)] += static_cast<Accumulator<T>>(row[c]);
        }
      } else {
        for (Index r = 0; r < values.rows(); ++r) {
          const T* const row = values.row(r) + first;
          for (Index c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += static_cast<Accumulator<T>>(row[c]);
        }
      }
      for (Index c = 0; c < width; ++c)
        detail::add_to(sums[static_cast<std::size_t>(first + c)], sum[static_cast<std::size_t>(c)]);
    }
  });
}

}  // namespace dtrain::ops
