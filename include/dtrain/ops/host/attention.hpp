// Causal self-attention with grouped key/value heads, tile of queries by tile of queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/device/host_product.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/exp.hpp"
#include "dtrain/ops/host/lanes.hpp"
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

/// Queries per tile: as many as keep a tile of scores within half of a small second-level cache.
template <class A>
Index attention_tile(Index context) {
  constexpr Index bytes = Index{128} << 10;
  return std::min(context, std::clamp<Index>(bytes / (context * static_cast<Index>(sizeof(A))), 16, 64));
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

template <class A>
void multiply(A alpha, Matrix<const A> a, bool transpose_a, Matrix<const A> b, bool transpose_b, A beta, Matrix<A> c) {
  dtrain::detail::gemm(transpose_a, transpose_b, c.rows(), c.columns(), transpose_a ? a.rows() : a.columns(), alpha,
                       a.data(), a.stride(), b.data(), b.stride(), beta, c.data(), c.stride());
}

/// The part of a packed row that one kind of head occupies.
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

/// Scores of one query row, of which the first `visible` count, become its attention weights; the rest of the row
/// becomes 0. Returns log(sum(exp(scores))).
template <class A>
A softmax_row(A* row, Index visible, Index width) {
  const A largest = lane_max<A>(visible, [row](Index j) { return row[j]; });
  for (Index j = 0; j < visible; ++j) row[j] = exp_of(row[j] - largest);
  const A sum = lane_sum<A>(visible, [row](Index j) { return row[j]; });
  const A inverse = 1 / sum;
  for (Index j = 0; j < visible; ++j) row[j] *= inverse;
  std::fill(row + visible, row + width, A{0});
  return largest + std::log(sum);
}

}  // namespace detail

/// y = softmax(q k^T / sqrt(D), causal) v per sample and head (Vaswani et al., 2017, equation 1); query head h reads
/// key/value head h / (heads / key_value_heads) (Ainslie et al., "GQA", 2023).
///
/// qkv [R, (Hq + 2 Hkv) D] holds q | k | v, each by head; R is a whole number of samples of `context` rows.
/// y [R, Hq D]. log_sum_exp [samples, Hq, context] receives log(sum(exp(scores))) for the backward pass.
/// Attention weight (i, j) of sample s and head h is element ((S H + G) context + i) context + j of `stream`, with
/// S = first_sample + s, H = total_heads and G = first_head + h; it is kept when that uniform number is >= dropout.
template <Scalar T>
void attention_forward(Host& device, const AttentionShape& shape, ReadMatrix<T> qkv, Matrix<T> y,
                       std::type_identity_t<std::span<Accumulator<T>>> log_sum_exp, RandomStream stream,
                       Index first_sample, Index first_head, Index total_heads) {
  using A = Accumulator<T>;
  using Cursor = detail::ScratchCursor<A>;
  detail::check_attention("attention_forward", shape, qkv.rows(), qkv.columns(), y.rows(), y.columns(),
                          log_sum_exp.size());
  dtrain::detail::keep_blas_single_threaded();
  const Index context = shape.context;
  const Index width = shape.head_size;
  const Index tile = detail::attention_tile<A>(context);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(width)));
  const bool drops = shape.dropout > 0.0;
  const detail::RandomMask mask(stream, shape.dropout);
  const Index units = qkv.rows() / context * shape.heads;
  const Index grain = detail::grain_for(context * context * width / 4);
  device.reserve_scratch(device.parts(units, grain), (Cursor::padded(tile * context) + Cursor::padded(context) +
                                                      4 * Cursor::padded(context * width)) *
                                                         static_cast<Index>(sizeof(A)));

  device.parallel_for(units, grain, [&](Range range, Index part) {
    for (Index unit = range.begin; unit < range.end; ++unit) {
      const Index sample = unit / shape.heads;
      const Index head = unit % shape.heads;
      const Range rows{sample * context, (sample + 1) * context};
      const detail::PackedHeads<const T> packed{qkv.row_range(rows), shape};
      Cursor scratch(device.scratch(part, 0));
      A* const scores = scratch.take(tile * context);
      A* const factors = scratch.take(context);
      const auto query = detail::head_view<T>(packed.query(head), scratch);
      const auto key = detail::head_view<T>(packed.key(head / shape.group()), scratch);
      const auto value = detail::head_view<T>(packed.value(head / shape.group()), scratch);
      const Matrix<T> target = y.row_range(rows).column_range({head * width, (head + 1) * width});
      const auto result = detail::head_result<T>(target, scratch);
      const Index global_head = (first_sample + sample) * total_heads + first_head + head;
      for (Index first = 0; first < context; first += tile) {
        const Range queries{first, std::min(first + tile, context)};
        const Range keys{0, queries.end};  // later keys are masked for every query of the tile
        const Matrix<A> weights(scores, queries.size(), keys.size());
        detail::multiply<A>(scale, query.row_range(queries), false, key.row_range(keys), true, A{0}, weights);
        for (Index i = queries.begin; i < queries.end; ++i) {
          A* const row = weights.row(i - first);
          log_sum_exp[static_cast<std::size_t>(unit * context + i)] = detail::softmax_row(row, i + 1, keys.size());
          if (!drops) continue;
          mask.fill(static_cast<std::uint64_t>((global_head * context + i) * context), i + 1, factors);
          for (Index j = 0; j <= i; ++j) row[j] *= factors[j];
        }
        detail::multiply<A>(A{1}, weights, false, value.row_range(keys), false, A{0}, result.row_range(queries));
      }
      detail::store_head<T>(result, target);
    }
  });
}

namespace detail {

/// What the backward pass of one query head reads and adds to.
template <class A>
struct AttentionHead {
  Matrix<const A> query, key, value, output, doutput;
  Matrix<A> dquery, dkey, dvalue;
  const A* log_sum_exp;
  std::uint64_t first_element;  // number of weight (0, 0) in the random stream
};

/// One tile of the backward pass (Dao et al., "FlashAttention", 2022, appendix B.2, on whole rows): the weights P
/// come back from their row's log-sum-exp, then dV += Pd^T dO, dP = mask dO V^T, dS = P (dP - rowsum(dO O)),
/// dQ = scale dS K, dK += scale dS^T Q, where Pd are the weights after dropout.
template <class A>
void attention_backward_tile(const AttentionHead<A>& head, Range queries, A scale, bool drops, const RandomMask& mask,
                             A beta, A* weights_memory, A* gradient_memory, A* factors, A* dropped_memory) {
  const Index context = head.query.rows();
  const Range keys{0, queries.end};
  const Matrix<A> weights(weights_memory, queries.size(), keys.size());
  const Matrix<A> gradients(gradient_memory, queries.size(), keys.size());
  const Matrix<A> dropped(drops ? dropped_memory : weights_memory, queries.size(), keys.size());
  const auto query = head.query.row_range(queries);
  const auto doutput = head.doutput.row_range(queries);
  multiply<A>(scale, query, false, head.key.row_range(keys), true, A{0}, weights);
  multiply<A>(A{1}, doutput, false, head.value.row_range(keys), true, A{0}, gradients);
  for (Index i = queries.begin; i < queries.end; ++i) {
    A* const weight = weights.row(i - queries.begin);
    A* const gradient = gradients.row(i - queries.begin);
    const A* const output = head.output.row(i);
    const A* const slope = head.doutput.row(i);
    const A log_sum = head.log_sum_exp[i];
    // sum_j P_ij dP_ij without a pass over the row: it equals dO_i O_i, with or without dropout.
    const A drift = lane_sum<A>(head.output.columns(), [=](Index c) { return output[c] * slope[c]; });
    const Index visible = i + 1;
    if (drops) {
      mask.fill(head.first_element + static_cast<std::uint64_t>(i * context), visible, factors);
      A* const kept = dropped.row(i - queries.begin);
      for (Index j = 0; j < visible; ++j) {
        const A probability = exp_of(weight[j] - log_sum);
        gradient[j] = probability * (gradient[j] * factors[j] - drift);
        kept[j] = probability * factors[j];
      }
      std::fill(kept + visible, kept + keys.size(), A{0});
    } else {
      for (Index j = 0; j < visible; ++j) {
        const A probability = exp_of(weight[j] - log_sum);
        gradient[j] = probability * (gradient[j] - drift);
        weight[j] = probability;
      }
      std::fill(weight + visible, weight + keys.size(), A{0});
    }
    std::fill(gradient + visible, gradient + keys.size(), A{0});
  }
  multiply<A>(A{1}, dropped, true, doutput, false, beta, head.dvalue.row_range(keys));
  multiply<A>(scale, gradients, false, head.key.row_range(keys), false, A{0}, head.dquery.row_range(queries));
  multiply<A>(scale, gradients, true, query, false, beta, head.dkey.row_range(keys));
}

}  // namespace detail

/// The gradient of `attention_forward`: overwrites dqkv [R, (Hq + 2 Hkv) D]. `y` and `log_sum_exp` are what the forward
/// pass wrote; the random arguments are those of the forward pass, whose mask is drawn again.
template <Scalar T>
void attention_backward(Host& device, const AttentionShape& shape, ReadMatrix<T> qkv, ReadMatrix<T> y,
                        ReadSpan<Accumulator<T>> log_sum_exp, ReadMatrix<T> dy, Matrix<T> dqkv, RandomStream stream,
                        Index first_sample, Index first_head, Index total_heads) {
  using A = Accumulator<T>;
  using Cursor = detail::ScratchCursor<A>;
  detail::check_attention("attention_backward", shape, qkv.rows(), qkv.columns(), y.rows(), y.columns(),
                          log_sum_exp.size());
  detail::check_same_shape("attention_backward", y, dy);
  detail::check_same_shape("attention_backward", qkv, dqkv);
  dtrain::detail::keep_blas_single_threaded();
  const Index context = shape.context;
  const Index width = shape.head_size;
  const Index tile = detail::attention_tile<A>(context);
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(width)));
  const bool drops = shape.dropout > 0.0;
  const detail::RandomMask mask(stream, shape.dropout);
  // A key/value head and the query heads that share it go to one thread, which sums their gradients in order.
  const Index units = qkv.rows() / context * shape.key_value_heads;
  const Index grain = detail::grain_for(context * context * width * shape.group() / 2);
  device.reserve_scratch(device.parts(units, grain), (3 * Cursor::padded(tile * context) + Cursor::padded(context) +
                                                      8 * Cursor::padded(context * width)) *
                                                         static_cast<Index>(sizeof(A)));

  device.parallel_for(units, grain, [&](Range range, Index part) {
    for (Index unit = range.begin; unit < range.end; ++unit) {
      const Index sample = unit / shape.key_value_heads;
      const Index shared = unit % shape.key_value_heads;
      const Range rows{sample * context, (sample + 1) * context};
      const detail::PackedHeads<const T> packed{qkv.row_range(rows), shape};
      const detail::PackedHeads<T> gradient{dqkv.row_range(rows), shape};
      Cursor scratch(device.scratch(part, 0));
      A* const weights = scratch.take(tile * context);
      A* const gradients = scratch.take(tile * context);
      A* const dropped = scratch.take(tile * context);
      A* const factors = scratch.take(context);
      detail::AttentionHead<A> head;
      head.key = detail::head_view<T>(packed.key(shared), scratch);
      head.value = detail::head_view<T>(packed.value(shared), scratch);
      head.dkey = detail::head_result<T>(gradient.key(shared), scratch);
      head.dvalue = detail::head_result<T>(gradient.value(shared), scratch);
      const Cursor per_head = scratch;
      bool fresh = true;  // nothing has been written to dkey and dvalue
      for (Index h = shared * shape.group(); h < (shared + 1) * shape.group(); ++h) {
        scratch = per_head;
        const Range columns{h * width, (h + 1) * width};
        head.query = detail::head_view<T>(packed.query(h), scratch);
        head.output = detail::head_view<T>(y.row_range(rows).column_range(columns), scratch);
        head.doutput = detail::head_view<T>(dy.row_range(rows).column_range(columns), scratch);
        head.dquery = detail::head_result<T>(gradient.query(h), scratch);
        head.log_sum_exp = log_sum_exp.data() + (sample * shape.heads + h) * context;
        head.first_element =
            static_cast<std::uint64_t>(((first_sample + sample) * total_heads + first_head + h) * context * context);
        // From the last tile, which sees every key and so overwrites all of dkey and dvalue, to the first.
        for (Index first = (context - 1) / tile * tile; first >= 0; first -= tile) {
          detail::attention_backward_tile<A>(head, {first, std::min(first + tile, context)}, scale, drops, mask,
                                             fresh ? A{0} : A{1}, weights, gradients, factors, dropped);
          fresh = false;
        }
        detail::store_head<T>(head.dquery, gradient.query(h));
      }
      detail::store_head<T>(head.dkey, gradient.key(shared));
      detail::store_head<T>(head.dvalue, gradient.value(shared));
    }
  });
}

}  // namespace dtrain::ops
