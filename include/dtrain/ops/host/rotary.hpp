// Rotary position embedding (Su et al., "RoFormer", 2021, section 3.2.2) in the rotate-half arrangement of Llama.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"

namespace dtrain::ops {

/// Elements of the table that `rotary_table` fills.
constexpr Index rotary_table_size(Index context, Index head_size) { return context * head_size; }

/// Fills the cosines and sines of all positions below `context`: for each position head_size/2 cosines, then as many
/// sines, of the angles position * base^(-2i / head_size). Throws Error when the length or head size does not fit.
template <class A>
void rotary_table(Index context, Index head_size, double base, std::span<A> table) {
  if (head_size < 2 || head_size % 2 != 0)
    throw Error(concatenate("rotary_table: a head size of ", head_size, " cannot be split into pairs."));
  detail::check_length("rotary_table", "the table", table.size(), rotary_table_size(context, head_size));
  const Index half = head_size / 2;
  for (Index i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
    for (Index position = 0; position < context; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table[static_cast<std::size_t>(position * head_size + i)] = static_cast<A>(std::cos(angle));
      table[static_cast<std::size_t>(position * head_size + half + i)] = static_cast<A>(std::sin(angle));
    }
  }
}

namespace detail {

/// Rotates each pair (i, i + half) by its angle times `direction` (1 or -1).
template <Scalar T>
void rotate(Host& device, Matrix<const T> x, Index heads, Index head_size, std::span<const Accumulator<T>> table,
            Index first_row, Index context, Matrix<T> y, Accumulator<T> direction) {
  using A = Accumulator<T>;
  check_same_shape("rotary", x, y);
  check_length("rotary", "the table", table.size(), rotary_table_size(context, head_size));
  if (head_size < 2 || head_size % 2 != 0 || x.columns() != heads * head_size || first_row < 0 || context < 1)
    throw Error(concatenate("rotary: ", x.columns(), " columns, ", heads, " heads of ", head_size, ", first row ",
                            first_row, " and context ", context, " do not fit together."));
  const Index half = head_size / 2;
  device.parallel_for(x.rows(), grain_for(x.columns() * 2), [&](Range rows) {
    const A turn = direction;
    for (Index r = rows.begin; r < rows.end; ++r) {
      const A* const cosine = table.data() + (first_row + r) % context * head_size;
      const A* const sine = cosine + half;
      for (Index head = 0; head < heads; ++head) {
        const T* const from = x.row(r) + head * head_size;
        T* const to = y.row(r) + head * head_size;
        // Pairs go through registers in small groups: y may be x, and both halves of a pair are read before either
        // is written.
        constexpr Index group = 8;
        Index i = 0;
        for (; i + group <= half; i += group) {
          A left[group];
          A right[group];
          for (Index k = 0; k < group; ++k) {
            const A a = static_cast<A>(from[i + k]);
            const A b = static_cast<A>(from[i + k + half]);
            left[k] = a * cosine[i + k] - turn * b * sine[i + k];
            right[k] = b * cosine[i + k] + turn * a * sine[i + k];
          }
          for (Index k = 0; k < group; ++k) to[i + k] = static_cast<T>(left[k]);
          for (Index k = 0; k < group; ++k) to[i + k + half] = static_cast<T>(right[k]);
        }
        for (; i < half; ++i) {
          const A a = static_cast<A>(from[i]);
          const A b = static_cast<A>(from[i + half]);
          to[i] = static_cast<T>(a * cosine[i] - turn * b * sine[i]);
          to[i + half] = static_cast<T>(b * cosine[i] + turn * a * sine[i]);
        }
      }
    }
  });
}

/// The table of one call in the device's scratch, for callers that keep none.
template <class A>
std::span<const A> scratch_table(Host& device, Index context, Index head_size, double base) {
  const Index size = rotary_table_size(context, head_size);
  const std::span<A> table(reinterpret_cast<A*>(device.scratch(0, size * static_cast<Index>(sizeof(A)))),
                           static_cast<std::size_t>(size));
  rotary_table(context, head_size, base, table);
  return table;
}

}  // namespace detail

/// y = x with each head's pairs (i, i + head_size/2) turned by the angle of their row's position,
/// (first_row + r) % context. x, y [R, heads * head_size], any stride; y may be x. `table` is what `rotary_table`
/// filled for the same context and head size.
template <Scalar T>
void rotary_forward(Host& device, ReadMatrix<T> x, Index heads, Index head_size,
                    std::type_identity_t<std::span<const Accumulator<T>>> table, Index first_row, Index context,
                    Matrix<T> y) {
  detail::rotate<T>(device, x, heads, head_size, table, first_row, context, y, 1);
}
/// The same with the angles computed in the call.
template <Scalar T>
void rotary_forward(Host& device, ReadMatrix<T> x, Index heads, Index head_size, double base, Index first_row,
                    Index context, Matrix<T> y) {
  const auto table = detail::scratch_table<Accumulator<T>>(device, context, head_size, base);
  detail::rotate<T>(device, x, heads, head_size, table, first_row, context, y, 1);
}

/// The inverse rotation, which is also the gradient: dx may be dy.
template <Scalar T>
void rotary_backward(Host& device, ReadMatrix<T> dy, Index heads, Index head_size,
                     std::type_identity_t<std::span<const Accumulator<T>>> table, Index first_row, Index context,
                     Matrix<T> dx) {
  detail::rotate<T>(device, dy, heads, head_size, table, first_row, context, dx, -1);
}
template <Scalar T>
void rotary_backward(Host& device, ReadMatrix<T> dy, Index heads, Index head_size, double base, Index first_row,
                     Index context, Matrix<T> dx) {
  const auto table = detail::scratch_table<Accumulator<T>>(device, context, head_size, base);
  detail::rotate<T>(device, dy, heads, head_size, table, first_row, context, dx, -1);
}

}  // namespace dtrain::ops
