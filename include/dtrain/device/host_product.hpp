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

template <std::floating_point T>
void split_product(Host& device, T alpha, Matrix<const T> a, bool transpose_a, Matrix<const T> b, bool transpose_b,
                   T beta, Matrix<T> c) {
  const Index inner = transpose_a ? a.rows() : a.columns();
  // Multiplications that one more thread must be given to be worth waking.
  constexpr Index least_work = Index{1} << 19;
  const bool by_rows = c.rows() >= c.columns();
  const Index length = by_rows ? c.rows() : c.columns();
  const Index grain = std::max<Index>(8, least_work / std::max<Index>(1, inner * (c.size() / length)));
  device.parallel_for(length, grain, [&](Range range) {
    const Index first_a = by_rows ? (transpose_a ? range.begin : range.begin * a.stride()) : 0;
    const Index first_b = by_rows ? 0 : (transpose_b ? range.begin * b.stride() : range.begin);
    T* const first_c = by_rows ? c.row(range.begin) : c.data() + range.begin;
    gemm(transpose_a, transpose_b, by_rows ? range.size() : c.rows(), by_rows ? c.columns() : range.size(), inner,
         alpha, a.data() + first_a, a.stride(), b.data() + first_b, b.stride(), beta, first_c, c.stride());
  });
}

inline void widen(Matrix<const bfloat16> from, float* to) {
  for (Index r = 0; r < from.rows(); ++r)
    for (Index c = 0; c < from.columns(); ++c) to[r * from.columns() + c] = from(r, c);
}

}  // namespace detail

/// C = alpha op(A) op(B) + beta C. With beta = 0 the old contents of C, NaN included, have no effect. Views may have
/// strides; C overlaps neither A nor B. bfloat16 is multiplied and summed as float and rounded once.
/// Throws Error when the sizes do not fit together.
template <Scalar T>
void product(Host& device, Accumulator<T> alpha, std::type_identity_t<Matrix<const T>> a, Transpose transpose_a,
             std::type_identity_t<Matrix<const T>> b, Transpose transpose_b, Accumulator<T> beta, Matrix<T> c) {
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
        c(r, column) = beta == 0 ? T{0} : static_cast<T>(beta * c(r, column));
    return;
  }
  if constexpr (std::same_as<T, bfloat16>) {
    float* const wide_a = reinterpret_cast<float*>(
        device.scratch(0, (a.size() + b.size() + c.size()) * static_cast<Index>(sizeof(float))));
    float* const wide_b = wide_a + a.size();
    const Matrix<float> wide_c(wide_b + b.size(), c.rows(), c.columns());
    detail::widen(a, wide_a);
    detail::widen(b, wide_b);
    if (beta != 0) detail::widen(c, wide_c.data());
    detail::split_product<float>(device, alpha, {wide_a, a.rows(), a.columns()}, ta, {wide_b, b.rows(), b.columns()},
                                 tb, beta, wide_c);
    for (Index r = 0; r < c.rows(); ++r)
      for (Index column = 0; column < c.columns(); ++column) c(r, column) = wide_c(r, column);
  } else {
    detail::split_product<T>(device, alpha, a, ta, b, tb, beta, c);
  }
}

}  // namespace dtrain
