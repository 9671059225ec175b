// One head of causal attention at a time: where its rows lie, and its tiles of queries forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/arena.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/exp.hpp"
#include "dtrain/ops/host/lanes.hpp"
#include "dtrain/ops/host/panel_product.hpp"
#include "dtrain/ops/host/random_mask.hpp"

namespace dtrain::ops {

/// The local heads of one rank. `context` is the number of tokens of a sample; `dropout` the probability with which
/// an attention weight is dropped.
struct AttentionShape {
  Index heads = 1;
  Index key_value_heads = 1;
  Index head_size = 1;
  Index context = 1;
  double dropout = 0.0;

  /// Query heads that share one key/value head.
  [[nodiscard]] constexpr Index group() const { return heads / key_value_heads; }
  /// Columns of the packed queries, keys and values.
  [[nodiscard]] constexpr Index packed_columns() const { return (heads + 2 * key_value_heads) * head_size; }
};

namespace detail {

inline void check_attention(const char* who, const AttentionShape& shape, Index rows, Index packed_columns,
                            Index output_rows, Index output_columns, std::size_t statistics) {
  const bool sizes = shape.heads > 0 && shape.key_value_heads > 0 && shape.head_size > 0 && shape.context > 0;
  if (!sizes || shape.heads % shape.key_value_heads != 0)
    throw Error(concatenate(who, ": ", shape.heads, " query heads and ", shape.key_value_heads,
                            " key/value heads of size ", shape.head_size, " over ", shape.context,
                            " tokens; all must be positive and the first a multiple of the second."));
  if (rows % shape.context != 0)
    throw Error(concatenate(who, ": ", rows, " rows are no whole number of samples of ", shape.context, " tokens."));
  if (packed_columns != shape.packed_columns() || output_rows != rows ||
      output_columns != shape.heads * shape.head_size)
    throw Error(concatenate(who, ": queries, keys and values are ", rows, "x", packed_columns, " and the output ",
                            output_rows, "x", output_columns, "; ", rows, "x", shape.packed_columns(), " and ", rows,
                            "x", shape.heads * shape.head_size, " are needed."));
  check_length(who, "log_sum_exp", statistics, rows * shape.heads);
  check_probability(who, shape.dropout);
}

/// Scores of a query are padded to whole groups of lanes and panels.
constexpr Index padded_context(Index context) { return round_up(context, lane_count); }

/// Queries per tile: as many as keep a tile of scores within a quarter of a second-level cache of 512 KiB. All tiles
/// but the last hold whole groups of `panel_rows` queries.
template <class A>
constexpr Index attention_tile(Index context) {
  constexpr Index bytes = Index{128} << 10;
  const Index fitting = bytes / (padded_context(context) * static_cast<Index>(sizeof(A)));
  return std::clamp<Index>(fitting / panel_rows * panel_rows, 16, 64);
}

/// Hands out pieces of one thread's scratch, each aligned to a cache line.
template <class A>
class ScratchCursor {
 public:
  static constexpr Index padded(Index elements) {
    return round_up(elements, HostArena::alignment / static_cast<Index>(sizeof(A)));
  }
  explicit ScratchCursor(std::byte* memory) : next_(reinterpret_cast<A*>(memory)) {}
  A* take(Index elements) {
    A* const piece = next_;
    next_ += padded(elements);
    return piece;
  }

 private:
  A* next_;
};

/// One head's rows in the type products are computed in: the view itself, or a widened copy in scratch.
template <Scalar T>
Matrix<const Accumulator<T>> head_view(Matrix<const T> source, ScratchCursor<Accumulator<T>>& scratch) {
  if constexpr (std::same_as<T, Accumulator<T>>) {
    return source;
  } else {
    const Matrix<Accumulator<T>> wide(scratch.take(source.size()), source.rows(), source.columns());
    for (Index r = 0; r < source.rows(); ++r)
      for (Index c = 0; c < source.columns(); ++c) wide(r, c) = static_cast<Accumulator<T>>(source(r, c));
    return wide;
  }
}

/// Where a head's result is computed: in place, or in scratch to be rounded by `store_head`.
template <Scalar T>
Matrix<Accumulator<T>> head_result(Matrix<T> target, ScratchCursor<Accumulator<T>>& scratch) {
  if constexpr (std::same_as<T, Accumulator<T>>)
    return target;
  else
    return {scratch.take(target.size()), target.rows(), target.columns()};
}
template <Scalar T>
void store_head(Matrix<Accumulator<T>> result, Matrix<T> target) {
  if constexpr (!std::same_as<T, Accumulator<T>>)
    for (Index r = 0; r < target.rows(); ++r)
      for (Index c = 0; c < target.columns(); ++c) target(r, c) = static_cast<T>(result(r, c));
}

/// One head's rows as a right operand, or their transpose.
template <Scalar T>
const Accumulator<T>* pack_head(Matrix<const T> source, bool transpose, ScratchCursor<Accumulator<T>>& scratch) {
  using A = Accumulator<T>;
  A* const panels = scratch.take(transpose ? panel_elements<A>(source.columns(), source.rows())
                                           : panel_elements<A>(source.rows(), source.columns()));
  if (transpose)
    pack_transposed_panels<A, T>(source, panels);
  else
    pack_panels<A, T>(source, panels);
  return panels;
}

/// Scratch elements that one head needs at most: `tiles` tiles of scores, one row of mask factors and `copies` packed,
/// widened or transposed copies of its rows.
template <class A>
constexpr Index attention_scratch(const AttentionShape& shape, Index tiles, Index copies) {
  using Cursor = ScratchCursor<A>;
  const Index context = padded_context(shape.context);
  return tiles * Cursor::padded(attention_tile<A>(shape.context) * context) + Cursor::padded(context) +
         copies * Cursor::padded(context * round_up(shape.head_size, panel_width<A>));
}

/// The parts of packed rows q | k | v that belong to one head.
template <class T>
struct PackedHeads {
  Matrix<T> packed;  // the rows of one sample
  AttentionShape shape;

  [[nodiscard]] Matrix<T> block(Index head) const {
    return packed.column_range({head * shape.head_size, (head + 1) * shape.head_size});
  }
  [[nodiscard]] Matrix<T> query(Index head) const { return block(head); }
  [[nodiscard]] Matrix<T> key(Index head) const { return block(shape.heads + head); }
  [[nodiscard]] Matrix<T> value(Index head) const { return block(shape.heads + shape.key_value_heads + head); }
};

/// Which products of a causal head are not zero, for a tile of queries that begins at `first`.
struct CausalTile {
  Index first;
  Index head_size;

  /// Queries times keys, summed over the head's dimensions: none where all keys are later than all queries.
  [[nodiscard]] constexpr auto scores() const {
    return [*this](Range queries, Range keys) { return Range{0, keys.begin < first + queries.end ? head_size : 0}; };
  }
  /// Queries times dimensions, summed over the keys up to the last query.
  [[nodiscard]] constexpr auto over_keys() const {
    return [*this](Range queries, Range) { return Range{0, first + queries.end}; };
  }
  /// Keys times dimensions, summed over the tile's queries (counted from `first`) from the first key on.
  [[nodiscard]] constexpr auto over_queries(Index queries) const {
    return [*this, queries](Range keys, Range) { return Range{std::max<Index>(0, keys.begin - first), queries}; };
  }
};

/// Scores of one query, of which the first `visible` count, become its attention weights; those after them, up to a
/// whole group of lanes, become 0. Returns log(sum(exp(scores))).
template <class A>
A softmax_row(A* row, Index visible) {
  const Index padded = round_up(visible, lane_count);
  std::fill(row + visible, row + padded, -std::numeric_limits<A>::infinity());
  const A largest = lane_max<A>(padded, [row](Index j) { return row[j]; });
  for (Index j = 0; j < padded; ++j) row[j] = exp_of(row[j] - largest);
  const A sum = lane_sum<A>(padded, [row](Index j) { return row[j]; });
  const A inverse = 1 / sum;
  for (Index j = 0; j < padded; ++j) row[j] *= inverse;
  return largest + std::log(sum);
}

/// What the passes of one query head share. Packed operands are those of the head's key/value head.
template <class A>
struct AttentionHead {
  AttentionShape shape;
  A scale;
  const RandomMask* mask;       // null without dropout
  std::uint64_t first_element;  // number of weight (0, 0) in the random stream
  A* factors;                   // one row of mask factors

  /// Draws the factors of the weights of query i.
  void draw(Index i) const {
    mask->fill(first_element + static_cast<std::uint64_t>(i * shape.context), round_up(i + 1, lane_count), factors);
  }
};

/// Rows `queries` of the output and of log(sum(exp(scores))). `scores` holds a tile.
template <class A>
void attention_forward_tile(const AttentionHead<A>& head, Range queries, Matrix<const A> query, const A* keys,
                            const A* values, A* scores, Matrix<A> output, A* log_sum_exp) {
  const CausalTile causal{queries.begin, head.shape.head_size};
  const Matrix<A> weights(scores, queries.size(), padded_context(head.shape.context));
  panel_product<false>(head.scale, as_stored(query.row_range(queries)), keys, head.shape.head_size,
                       weights.column_range({0, round_up(queries.end, lane_count)}), causal.scores());
  for (Index i = queries.begin; i < queries.end; ++i) {
    A* const row = weights.row(i - queries.begin);
    log_sum_exp[i] = softmax_row(row, i + 1);
    if (head.mask == nullptr) continue;
    head.draw(i);
    const A* const factors = head.factors;
    for (Index j = 0; j < round_up(i + 1, lane_count); ++j) row[j] *= factors[j];
  }
  panel_product<false>(A{1}, as_stored<A>(weights), values, head.shape.context, output.row_range(queries),
                       causal.over_keys());
}

/// What the backward pass of one query head reads and adds to. Packed operands end in `_panels`.
template <class A>
struct AttentionGradients {
  Matrix<const A> query, output, doutput;
  const A *query_panels, *key_panels, *transposed_key_panels, *transposed_value_panels, *doutput_panels;
  Matrix<A> dquery, dkey, dvalue;
  const A* log_sum_exp;
  A *weights, *gradients, *dropped;  // a tile each; `dropped` is used with dropout only
};

/// Scores and dP of one query become its weights P and dS = P (mask dP - rowsum(dO O)); with dropout `dropped` receives
/// mask P, else it is ignored.
template <class A>
void attention_backward_row(const A* factors, A log_sum, A drift, Index visible, A* weight, A* gradient, A* dropped) {
  const Index padded = round_up(visible, lane_count);
  std::fill(weight + visible, weight + padded, -std::numeric_limits<A>::infinity());  // their weights are 0
  if (factors == nullptr) {
    for (Index j = 0; j < padded; ++j) weight[j] = exp_of(weight[j] - log_sum);
    for (Index j = 0; j < padded; ++j) gradient[j] = weight[j] * (gradient[j] - drift);
  } else {
    for (Index j = 0; j < padded; ++j) weight[j] = exp_of(weight[j] - log_sum);
    for (Index j = 0; j < padded; ++j) dropped[j] = weight[j] * factors[j];
    for (Index j = 0; j < padded; ++j) gradient[j] = weight[j] * (gradient[j] * factors[j] - drift);
  }
}

/// One tile of the backward pass (Dao et al., "FlashAttention", 2022, appendix B.2, on whole rows): the weights P
/// come back from their row's log-sum-exp, then dV += Pd^T dO, dP = mask dO V^T, dS = P (dP - rowsum(dO O)),
/// dQ = scale dS K, dK += scale dS^T Q, where Pd are the weights after dropout.
template <class A>
void attention_backward_tile(const AttentionHead<A>& head, const AttentionGradients<A>& at, Range queries) {
  const Index size = head.shape.head_size;
  const CausalTile causal{queries.begin, size};
  const Range keys{0, queries.end};
  const Index columns = padded_context(head.shape.context);
  const Range computed{0, round_up(queries.end, lane_count)};
  const Matrix<A> weights(at.weights, queries.size(), columns);
  const Matrix<A> gradients(at.gradients, queries.size(), columns);
  const Matrix<A> dropped(head.mask == nullptr ? at.weights : at.dropped, queries.size(), columns);
  panel_product<false>(head.scale, as_stored(at.query.row_range(queries)), at.transposed_key_panels, size,
                       weights.column_range(computed), causal.scores());
  panel_product<false>(A{1}, as_stored(at.doutput.row_range(queries)), at.transposed_value_panels, size,
                       gradients.column_range(computed), causal.scores());
  for (Index i = queries.begin; i < queries.end; ++i) {
    const A* const output = at.output.row(i);
    const A* const slope = at.doutput.row(i);
    // sum_j P_ij dP_ij without a pass over the row: it equals dO_i O_i, with or without dropout.
    const A drift = lane_sum<A>(size, [=](Index c) { return output[c] * slope[c]; });
    if (head.mask != nullptr) head.draw(i);
    const Index r = i - queries.begin;
    attention_backward_row<A>(head.mask == nullptr ? nullptr : head.factors, at.log_sum_exp[i], drift, i + 1,
                              weights.row(r), gradients.row(r), dropped.row(r));
  }
  const Index first = queries.begin;
  panel_product<true>(A{1}, transposed<A>(dropped), at.doutput_panels + first * panel_width<A>, head.shape.context,
                      at.dvalue.row_range(keys), causal.over_queries(queries.size()));
  panel_product<true>(head.scale, transposed<A>(gradients), at.query_panels + first * panel_width<A>,
                      head.shape.context, at.dkey.row_range(keys), causal.over_queries(queries.size()));
  panel_product<false>(head.scale, as_stored<A>(gradients), at.key_panels, head.shape.context,
                       at.dquery.row_range(queries), causal.over_keys());
}

}  // namespace detail
}  // namespace dtrain::ops
