// Copies matrices whose rows lie at different strides.
#pragma once

#include <algorithm>

#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"

namespace dtrain::ops {

/// to = from, element by element; the shapes must agree, and the two may not overlap.
template <Scalar T>
void copy_matrix(Host& device, ReadMatrix<T> from, Matrix<T> to) {
  detail::check_same_shape("copy_matrix", from, to);
  device.parallel_for(to.rows(), detail::grain_for(to.columns()), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) std::copy_n(from.row(r), to.columns(), to.row(r));
  });
}

}  // namespace dtrain::ops
