// Products of small matrices of which part is known to be zero, on operands packed once and used many times.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops::detail {

// The right operand is kept as panels: panel p holds columns [p W, (p+1) W) of every row, one row after the other, and
// zeros beyond the last column. W elements fill two registers of AVX2, so that 4 rows of results take 8 of the 16.
template <class A>
inline constexpr Index panel_width = 64 / static_cast<Index>(sizeof(A));
inline constexpr Index panel_rows = 4;

/// Elements of the panels of a matrix with `rows` rows and `columns` columns.
template <class A>
constexpr Index panel_elements(Index rows, Index columns) {
  return rows * round_up(columns, panel_width<A>);
}

/// Packs `source` as a right operand.
template <class A, class T>
void pack_panels(Matrix<const T> source, A* panels) {
  constexpr Index width = panel_width<A>;
  for (Index first = 0; first < source.columns(); first += width) {
    const Index count = std::min(width, source.columns() - first);
    for (Index r = 0; r < source.rows(); ++r, panels += width) {
      const T* const from = source.row(r) + first;
      if (count == width) {
        std::array<A, static_cast<std::size_t>(width)> line;  // aliases nothing, so it is filled with SIMD
        for (std::size_t c = 0; c < line.size(); ++c) line[c] = static_cast<A>(from[c]);
        std::copy(line.begin(), line.end(), panels);
      } else {
        for (Index c = 0; c < width; ++c) panels[c] = c < count ? static_cast<A>(from[c]) : A{0};
      }
    }
  }
}

/// Packs the transpose of `source` as a right operand.
template <class A, class T>
void pack_transposed_panels(Matrix<const T> source, A* panels) {
  constexpr Index width = panel_width<A>;
  for (Index first = 0; first < source.rows(); first += width) {
    const Index count = std::min(width, source.rows() - first);
    if (count < width) std::fill_n(panels, width * source.columns(), A{0});
    for (Index r = 0; r < count; ++r) {
      const T* const from = source.row(first + r);
      for (Index c = 0; c < source.columns(); ++c) panels[c * width + r] = static_cast<A>(from[c]);
    }
    panels += width * source.columns();
  }
}

/// A left operand: element (r, k) lies at data[r * row_step + k * inner_step], so that a transpose is a view.
template <class A>
struct LeftOperand {
  const A* data;
  Index row_step;
  Index inner_step;
};
template <class A>
LeftOperand<A> as_stored(Matrix<const A> matrix) {
  return {matrix.data(), matrix.stride(), 1};
}
template <class A>
LeftOperand<A> transposed(Matrix<const A> matrix) {
  return {matrix.data(), 1, matrix.stride()};
}

template <class A>
struct PanelVector;
template <>
struct PanelVector<float> {
  typedef float Type __attribute__((vector_size(32)));
};
template <>
struct PanelVector<double> {
  typedef double Type __attribute__((vector_size(32)));
};

/// Rows 0 .. rows-1 (at most 4) of c = alpha * sum over `inner` of a(r, k) * panel(k, :), or += if `Add`. All columns
/// of the panel are written.
template <bool Add, class A>
[[gnu::always_inline]] inline void panel_tile(A alpha, LeftOperand<A> a, Index rows, const A* panel, Range inner, A* c,
                                              Index stride) {
  using Vector = typename PanelVector<A>::Type;
  constexpr Index half = panel_width<A> / 2;
  // Rows that do not exist repeat the last one and are not stored.
  const A* const row0 = a.data + inner.begin * a.inner_step;
  const A* const row1 = row0 + (rows > 1 ? a.row_step : 0);
  const A* const row2 = row1 + (rows > 2 ? a.row_step : 0);
  const A* const row3 = row2 + (rows > 3 ? a.row_step : 0);
  // Named one by one: GCC keeps an array of vectors in memory.
  Vector left0{}, right0{}, left1{}, right1{}, left2{}, right2{}, left3{}, right3{};
  const A* from = panel + inner.begin * panel_width<A>;
  const Index count = inner.size();
  for (Index k = 0, at = 0; k < count; ++k, at += a.inner_step, from += panel_width<A>) {
    Vector left, right;
    std::memcpy(&left, from, sizeof left);
    std::memcpy(&right, from + half, sizeof right);
    left0 += row0[at] * left;
    right0 += row0[at] * right;
    left1 += row1[at] * left;
    right1 += row1[at] * right;
    left2 += row2[at] * left;
    right2 += row2[at] * right;
    left3 += row3[at] * left;
    right3 += row3[at] * right;
  }
  const auto store = [alpha](const Vector& sum, A* to) {
    Vector value = alpha * sum;
    if constexpr (Add) {
      Vector old;
      std::memcpy(&old, to, sizeof old);
      value += old;
    }
    std::memcpy(to, &value, sizeof value);
  };
  store(left0, c);
  store(right0, c + half);
  if (rows < 2) return;
  store(left1, c + stride);
  store(right1, c + stride + half);
  if (rows < 3) return;
  store(left2, c + 2 * stride);
  store(right2, c + 2 * stride + half);
  if (rows < 4) return;
  store(left3, c + 3 * stride);
  store(right3, c + 3 * stride + half);
}

/// C = alpha A B, or C += alpha A B if `Add`, where B lies in panels of `inner` rows and C has as many rows as A.
/// `span(rows, columns)` tells which part of the inner dimension can differ from zero for these rows and columns of C;
/// tiles for which it is empty are left as they are.
template <bool Add, class A, class Span>
void panel_product(A alpha, LeftOperand<A> a, const A* panels, Index inner, Matrix<A> c, Span span) {
  constexpr Index width = panel_width<A>;
  for (Index column = 0; column < c.columns(); column += width) {
    const Index columns = std::min(width, c.columns() - column);
    const A* const panel = panels + column * inner;
    for (Index row = 0; row < c.rows(); row += panel_rows) {
      const Index rows = std::min(panel_rows, c.rows() - row);
      const Range range = span(Range{row, row + rows}, Range{column, column + columns});
      if (range.size() <= 0) continue;
      const LeftOperand<A> left{a.data + row * a.row_step, a.row_step, a.inner_step};
      A* const to = c.row(row) + column;
      if (columns == width) {
        panel_tile<Add>(alpha, left, rows, panel, range, to, c.stride());
        continue;
      }
      alignas(64) std::array<A, static_cast<std::size_t>(panel_rows * width)> whole{};
      panel_tile<false>(alpha, left, rows, panel, range, whole.data(), width);
      for (Index r = 0; r < rows; ++r)
        for (Index k = 0; k < columns; ++k) {
          A& element = to[r * c.stride() + k];
          element = (Add ? element : A{0}) + whole[static_cast<std::size_t>(r * width + k)];
        }
    }
  }
}

}  // namespace dtrain::ops::detail
