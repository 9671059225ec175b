// Token and position embeddings: rows of a table, looked up or added, and their gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

namespace detail {

inline void check_embedding(const char* who, std::size_t tokens, Index rows, Range vocabulary, Index table_rows,
                            Index table_width, Index width) {
  check_length(who, "the token list", tokens, rows);
  if (table_rows < vocabulary.size() || table_width != width)
    throw Error(concatenate(who, ": the table is ", table_rows, "x", table_width, " but ", vocabulary.size(),
                            " tokens of width ", width, " are looked up."));
}

inline void check_positions(const char* who, Index first_row, Index context, Index table_rows, Index table_width,
                            Index width) {
  if (first_row < 0 || context < 1 || context > table_rows || table_width != width)
    throw Error(concatenate(who, ": context ", context, " and first row ", first_row, " with width ", width,
                            " do not suit a ", table_rows, "x", table_width, " table of positions."));
}

}  // namespace detail

/// y[r] = weight[tokens[r] - vocabulary.begin] if the token lies in `vocabulary`, else 0: the sum over the shards of a
/// vocabulary is then the whole lookup. weight [Vlocal, W], y [R, W].
template <Scalar T>
void embedding_forward(Host& device, std::span<const std::int32_t> tokens, ReadMatrix<T> weight, Range vocabulary,
                       Matrix<T> y) {
  detail::check_embedding("embedding_forward", tokens.size(), y.rows(), vocabulary, weight.rows(), weight.columns(),
                          y.columns());
  device.parallel_for(y.rows(), detail::grain_for(y.columns()), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const Index token = tokens[static_cast<std::size_t>(r)];
      if (vocabulary.contains(token))
        std::copy_n(weight.row(token - vocabulary.begin), y.columns(), y.row(r));
      else
        std::fill_n(y.row(r), y.columns(), T{0});
    }
  });
}

/// dweight[tokens[r] - vocabulary.begin] += dy[r] for the tokens in `vocabulary`. Threads share out the columns, so
/// that equal tokens are summed in the order of their rows.
template <class D, Scalar G>
void embedding_backward(Host& device, std::span<const std::int32_t> tokens, Matrix<D> dy, Range vocabulary,
                        Matrix<G> dweight) {
  detail::check_embedding("embedding_backward", tokens.size(), dy.rows(), vocabulary, dweight.rows(), dweight.columns(),
                          dy.columns());
  device.parallel_for(dy.columns(), detail::grain_for(dy.rows()), [&](Range columns) {
    for (Index r = 0; r < dy.rows(); ++r) {
      const Index token = tokens[static_cast<std::size_t>(r)];
      if (!vocabulary.contains(token)) continue;
      detail::add_row(columns.size(), dweight.row(token - vocabulary.begin) + columns.begin, dy.row(r) + columns.begin);
    }
  });
}

/// y[r] = x[r] + weight[(first_row + r) % context]: rows are consecutive positions of samples of `context` tokens.
/// weight has at least `context` rows; y may be x.
template <Scalar T>
void position_forward(Host& device, ReadMatrix<T> x, ReadMatrix<T> weight, Index first_row, Index context,
                      Matrix<T> y) {
  detail::check_same_shape("position_forward", x, y);
  detail::check_positions("position_forward", first_row, context, weight.rows(), weight.columns(), y.columns());
  device.parallel_for(y.rows(), detail::grain_for(y.columns()), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r)
      detail::map_row(
          y.columns(), y.row(r), [](auto value, auto position) { return value + position; }, x.row(r),
          weight.row((first_row + r) % context));
  });
}

/// dweight[(first_row + r) % context] += dy[r], summed in the order of the rows.
template <class D, Scalar G>
void position_backward(Host& device, Matrix<D> dy, Index first_row, Index context, Matrix<G> dweight) {
  detail::check_positions("position_backward", first_row, context, dweight.rows(), dweight.columns(), dy.columns());
  device.parallel_for(dy.columns(), detail::grain_for(dy.rows()), [&](Range columns) {
    for (Index r = 0; r < dy.rows(); ++r)
      detail::add_row(columns.size(), dweight.row((first_row + r) % context) + columns.begin,
                      dy.row(r) + columns.begin);
  });
}

}  // namespace dtrain::ops
