// Matrix products on the host, by any CBLAS, shared out over the device's own threads.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"

// Present in OpenBLAS only; null with any other library.
extern "C" void openblas_set_num_threads(int) __attribute__((weak));

namespace dtrain {

/// Whether an operand enters a product as it is stored or transposed.
enum class Transpose : bool { no = false, yes = true };

namespace detail {

/// The device splits the work itself; a BLAS with threads of its own would oversubscribe the cores.
inline void keep_blas_single_threaded() {
  static const bool once = [] {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

/// C = alpha op(A) op(B) + beta C on the calling thread. C is rows x columns, `inner` is the summed dimension; the
/// strides are those of the stored matrices.
template <std::floating_point T>
void gemm(bool transpose_a, bool transpose_b, Index rows, Index columns, Index inner, T alpha, const T* a,
          Index stride_a, const T* b, Index stride_b, T beta, T* c, Index stride_c) {
  const auto op_a = transpose_a ? CblasTrans : CblasNoTrans;
  const auto op_b = transpose_b ? CblasTrans : CblasNoTrans;
  const auto narrow = [](Index value) { return static_cast<int>(value); };
  if constexpr (std::same_as<T, float>)
    cblas_sgemm(CblasRowMajor, op_a, op_b, narrow(rows), narrow(columns), narrow(inner), alpha, a, narrow(stride_a), b,
                narrow(stride_b), beta, c, narrow(stride_c));
  else
    cblas_dgemm(CblasRowMajor, op_a, op_b, narrow(rows), narrow(columns), narrow(inner), alpha, a, narrow(stride_a), b,
                narrow(stride_b), beta, c, narrow(stride_c));
}

inline void check_product(Index a_rows, Index a_columns, Index b_rows, Index b_columns, Index rows, Index columns,
                          Index largest_stride) {
  if (a_rows != rows || b_columns != columns || a_columns != b_rows)
    throw Error(concatenate("product: a ", a_rows, "x", a_columns, " matrix times a ", b_rows, "x", b_columns,
                            " matrix does not give a ", rows, "x", columns, " matrix."));
  const Index largest = std::max({a_rows, a_columns, b_columns, largest_stride});
  if (largest > std::numeric_limits<int>::max())
    throw Error(concatenate("product: a size or stride of ", largest, " exceeds what CBLAS can express."));
}

/// Rows or columns of a result, of `work` multiplications each, that are worth waking one more thread for.
constexpr Index product_grain(Index work) {
  constexpr Index least_work = Index{1} << 19;
  return std::max<Index>(8, least_work / std::max<Index>(1, work));
}

/// Calls f(Range) for pieces of `range` of at most `size`, in order.
template <class F>
void for_blocks(Range range, Index size, F&& f) {
  for (Index begin = range.begin; begin < range.end; begin += size) f(Range{begin, std::min(begin + size, range.end)});
}

template <std::floating_point T>
void split_product(Host& device, T alpha, Matrix<const T> a, bool transpose_a, Matrix<const T> b, bool transpose_b,
                   T beta, Matrix<T> c) {
  const Index inner = transpose_a ? a.rows() : a.columns();
  const bool by_rows = c.rows() >= c.columns();
  const Index length = by_rows ? c.rows() : c.columns();
  const Index grain = product_grain(inner * (c.size() / length));
  device.parallel_for(length, grain, [&](Range range) {
    const Index first_a = by_rows ? (transpose_a ? range.begin : range.begin * a.stride()) : 0;
    const Index first_b = by_rows ? 0 : (transpose_b ? range.begin * b.stride() : range.begin);
    T* const first_c = by_rows ? c.row(range.begin) : c.data() + range.begin;
    gemm(transpose_a, transpose_b, by_rows ? range.size() : c.rows(), by_rows ? c.columns() : range.size(), inner,
         alpha, a.data() + first_a, a.stride(), b.data() + first_b, b.stride(), beta, first_c, c.stride());
  });
}

/// A block of a matrix in type `A`: the block itself where it is of that type, else a copy in `room`.
template <std::floating_point A, Scalar T>
Matrix<const A> widened(Matrix<const T> block, A* room) {
  if constexpr (std::same_as<T, A>) {
    return block;
  } else {
    const Index columns = block.columns();
    for (Index r = 0; r < block.rows(); ++r) {
      const T* const from = block.row(r);
      A* const to = room + r * columns;
      for (Index c = 0; c < columns; ++c) to[c] = static_cast<A>(from[c]);
    }
    return {room, block.rows(), columns};
  }
}

/// C = alpha op(A) op(B) + beta C, where BLAS does not take the types: by blocks that stay in the cache, converted to
/// the type that BLAS computes in, and rounded once to the type of C.
template <Scalar C, Scalar T>
void converted_product(Host& device, Accumulator<T> alpha, Matrix<const T> a, bool transpose_a, Matrix<const T> b,
                       bool transpose_b, Accumulator<T> beta, Matrix<C> c) {
  using A = Accumulator<T>;
  // A block is converted once for every block of the other operand: their sides bound what that costs.
  constexpr Index row_block = 192, column_block = 512, inner_block = 512;
  const Index inner = transpose_a ? a.rows() : a.columns();
  const bool by_rows = c.rows() >= c.columns();
  const Index length = by_rows ? c.rows() : c.columns();
  const Index grain = product_grain(inner * (c.size() / length));
  const Index most_rows = std::min(row_block, c.rows());
  const Index most_columns = std::min(column_block, c.columns());
  const Index most_inner = std::min(inner_block, inner);
  const Index elements = (most_rows + most_columns) * most_inner + most_rows * most_columns;
  device.reserve_scratch(device.parts(length, grain), elements * static_cast<Index>(sizeof(A)));
  device.parallel_for(length, grain, [&](Range range, Index part) {
    A* const room_a = reinterpret_cast<A*>(device.scratch(part, elements * static_cast<Index>(sizeof(A))));
    A* const room_b = room_a + most_rows * most_inner;
    A* const sums = room_b + most_columns * most_inner;
    const Range all_rows = by_rows ? range : Range{0, c.rows()};
    const Range all_columns = by_rows ? Range{0, c.columns()} : range;
    for_blocks(all_columns, column_block, [&](Range columns) {
      for_blocks(all_rows, row_block, [&](Range rows) {
        for_blocks({0, inner}, inner_block, [&](Range depth) {
          const auto left =
              widened<A>(a.row_range(transpose_a ? depth : rows).column_range(transpose_a ? rows : depth), room_a);
          const auto right = widened<A>(
              b.row_range(transpose_b ? columns : depth).column_range(transpose_b ? depth : columns), room_b);
          gemm<A>(transpose_a, transpose_b, rows.size(), columns.size(), depth.size(), alpha, left.data(),
                  left.stride(), right.data(), right.stride(), depth.begin == 0 ? A{0} : A{1}, sums, columns.size());
        });
        for (Index r = 0; r < rows.size(); ++r) {
          const A* const from = sums + r * columns.size();
          C* const to = c.row(rows.begin + r) + columns.begin;
          if (beta == 0)
            for (Index k = 0; k < columns.size(); ++k) to[k] = static_cast<C>(static_cast<Accumulator<C>>(from[k]));
          else
            for (Index k = 0; k < columns.size(); ++k)
              to[k] = static_cast<C>(
                  static_cast<Accumulator<C>>(from[k] + beta * static_cast<A>(static_cast<Accumulator<C>>(to[k]))));
        }
      });
    });
  });
}

}  // namespace detail

/// C = alpha op(A) op(B) + beta C. With beta = 0 the old contents of C, NaN included, have no effect. Views may have
/// strides; C overlaps neither A nor B. The operands may be of another type, `T`, than C; 16-bit types are multiplied
/// and summed as float and rounded once, to the type of C.
/// Throws Error when the sizes do not fit together.
template <Scalar C, Scalar T = C>
void product(Host& device, Accumulator<std::type_identity_t<T>> alpha, std::type_identity_t<Matrix<const T>> a,
             Transpose transpose_a, std::type_identity_t<Matrix<const T>> b, Transpose transpose_b,
             Accumulator<std::type_identity_t<T>> beta, Matrix<C> c) {
  detail::keep_blas_single_threaded();
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const Index inner = ta ? a.rows() : a.columns();
  detail::check_product(ta ? a.columns() : a.rows(), inner, tb ? b.columns() : b.rows(), tb ? b.rows() : b.columns(),
                        c.rows(), c.columns(), std::max({a.stride(), b.stride(), c.stride()}));
  if (c.size() == 0) return;
  if (inner == 0) {
    for (Index r = 0; r < c.rows(); ++r)
      for (Index column = 0; column < c.columns(); ++column)
        c(r, column) =
            beta == 0 ? C{0}
                      : static_cast<C>(static_cast<Accumulator<C>>(beta) * static_cast<Accumulator<C>>(c(r, column)));
    return;
  }
  if constexpr (!std::same_as<T, C> || !std::same_as<T, Accumulator<T>>) {
    detail::converted_product<C, T>(device, alpha, a, ta, b, tb, beta, c);
  } else {
    detail::split_product<T>(device, alpha, a, ta, b, tb, beta, c);
  }
}

}  // namespace dtrain
