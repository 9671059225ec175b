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
template <Scalar T>
void bias_backward(Host& device, ReadMatrix<T> dy, std::span<T> dbias) {
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

/// dW += dy^T x, accumulated over micro-batches into dweight [O, I].
template <Scalar T>
void linear_backward_weight(Host& device, ReadMatrix<T> x, ReadMatrix<T> dy, Matrix<T> dweight) {
  product(device, Accumulator<T>{1}, dy, Transpose::yes, x, Transpose::no, Accumulator<T>{1}, dweight);
}

}  // namespace dtrain::ops
