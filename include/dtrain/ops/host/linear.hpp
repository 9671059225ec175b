// The linear layer: y = x W^T + b and its gradients.
#pragma once

#include <span>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/device/host_product.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/reduce.hpp"

namespace dtrain::ops {

/// y[r, c] += bias[c].
template <Scalar T>
void bias_forward(Host& device, Matrix<T> y, ReadSpan<T> bias) {
  detail::check_length("bias_forward", "the bias", bias.size(), y.columns());
  device.parallel_for(y.rows(), detail::grain_for(y.columns()), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      T* const to = y.row(r);
      const T* const from = bias.data();
      for (Index c = 0; c < y.columns(); ++c)
        to[c] = static_cast<T>(static_cast<Accumulator<T>>(to[c]) + static_cast<Accumulator<T>>(from[c]));
    }
  });
}

/// dbias[c] += sum over r of dy[r, c].
template <class D, Scalar G>
void bias_backward(Host& device, Matrix<D> dy, std::span<G> dbias) {
  accumulate_column_sums(device, dy, dbias);
}

/// y = x W^T + b with x [R, I], W [O, I] (stored as PyTorch stores it), b [O] or empty, y [R, O].
template <Scalar T>
void linear_forward(Host& device, ReadMatrix<T> x, ReadMatrix<T> weight, ReadSpan<T> bias, Matrix<T> y) {
  product(device, Accumulator<T>{1}, x, Transpose::no, weight, Transpose::yes, Accumulator<T>{0}, y);
  if (!bias.empty()) bias_forward(device, y, bias);
}

/// dx = dy W; overwrites dx [R, I].
template <Scalar T>
void linear_backward_input(Host& device, ReadMatrix<T> dy, ReadMatrix<T> weight, Matrix<T> dx) {
  product(device, Accumulator<T>{1}, dy, Transpose::no, weight, Transpose::no, Accumulator<T>{0}, dx);
}

/// dW += dy^T x, accumulated over micro-batches into dweight [O, I], whose type may be wider than that of x and dy.
template <class D, Scalar G>
void linear_backward_weight(Host& device, ReadMatrix<ValueOf<D>> x, Matrix<D> dy, Matrix<G> dweight) {
  using A = Accumulator<ValueOf<D>>;
  product<G, ValueOf<D>>(device, A{1}, dy, Transpose::yes, x, Transpose::no, A{1}, dweight);
}

}  // namespace dtrain::ops
