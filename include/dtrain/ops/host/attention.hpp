// Causal self-attention with grouped key/value heads, tile of queries by tile of queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/attention_head.hpp"
#include "dtrain/ops/host/random_mask.hpp"

namespace dtrain::ops {

/// y = softmax(q k^T / sqrt(D), causal) v per sample and head (Vaswani et al., 2017, equation 1); query head h reads
/// key/value head h / (heads / key_value_heads) (Ainslie et al., "GQA", 2023).
///
/// qkv [R, (Hq + 2 Hkv) D] holds q | k | v, each by head; R is a whole number of samples of `context` rows.
/// y [R, Hq D]. log_sum_exp [samples, Hq, context] receives log(sum(exp(scores))) for the backward pass.
/// Attention weight (i, j) of sample s and head h is element ((S H + G) context + i) context + j of `stream`, with
/// S = first_sample + s, H = total_heads and G = first_head + h; it is kept when that uniform number is >= dropout.
/// Throws Error when sizes do not fit together.
template <Scalar T>
void attention_forward(Host& device, const AttentionShape& shape, ReadMatrix<T> qkv, Matrix<T> y,
                       std::type_identity_t<std::span<Accumulator<T>>> log_sum_exp, RandomStream stream,
                       Index first_sample, Index first_head, Index total_heads) {
  using A = Accumulator<T>;
  detail::check_attention("attention_forward", shape, qkv.rows(), qkv.columns(), y.rows(), y.columns(),
                          log_sum_exp.size());
  const Index context = shape.context;
  const Index width = shape.head_size;
  const Index tile = detail::attention_tile<A>(context);
  const detail::RandomMask mask(stream, shape.dropout);
  // A key/value head and the query heads that share it go to one thread, which packs keys and values once.
  const Index units = qkv.rows() / context * shape.key_value_heads;
  const Index grain = detail::grain_for(context * context * width * shape.group() / 8);
  device.reserve_scratch(device.parts(units, grain),
                         detail::attention_scratch<A>(shape, 1, 4) * static_cast<Index>(sizeof(A)));

  device.parallel_for(units, grain, [&](Range range, Index part) {
    for (Index unit = range.begin; unit < range.end; ++unit) {
      const Index sample = unit / shape.key_value_heads;
      const Index shared = unit % shape.key_value_heads;
      const Range rows{sample * context, (sample + 1) * context};
      const detail::PackedHeads<const T> packed{qkv.row_range(rows), shape};
      detail::ScratchCursor<A> scratch(device.scratch(part, 0));
      A* const scores = scratch.take(tile * detail::padded_context(context));
      A* const factors = scratch.take(detail::padded_context(context));
      const A* const keys = detail::pack_head<T>(packed.key(shared), true, scratch);
      const A* const values = detail::pack_head<T>(packed.value(shared), false, scratch);
      const detail::ScratchCursor<A> per_head = scratch;
      for (Index h = shared * shape.group(); h < (shared + 1) * shape.group(); ++h) {
        scratch = per_head;
        const auto query = detail::head_view<T>(packed.query(h), scratch);
        const Matrix<T> target = y.row_range(rows).column_range({h * width, (h + 1) * width});
        const auto output = detail::head_result<T>(target, scratch);
        const Index global_head = (first_sample + sample) * total_heads + first_head + h;
        const detail::AttentionHead<A> head{shape, static_cast<A>(1.0 / std::sqrt(static_cast<double>(width))),
                                            shape.dropout > 0.0 ? &mask : nullptr,
                                            static_cast<std::uint64_t>(global_head * context * context), factors};
        for (Index first = 0; first < context; first += tile)
          detail::attention_forward_tile<A>(head, {first, std::min(first + tile, context)}, query, keys, values, scores,
                                            output, log_sum_exp.data() + (sample * shape.heads + h) * context);
        detail::store_head<T>(output, target);
      }
    }
  });
}

/// The gradient of `attention_forward`: overwrites dqkv [R, (Hq + 2 Hkv) D]. `y` and `log_sum_exp` are what the forward
/// pass wrote; the random arguments are those of the forward pass, whose mask is drawn again.
template <Scalar T>
void attention_backward(Host& device, const AttentionShape& shape, ReadMatrix<T> qkv, ReadMatrix<T> y,
                        ReadSpan<Accumulator<T>> log_sum_exp, ReadMatrix<T> dy, Matrix<T> dqkv, RandomStream stream,
                        Index first_sample, Index first_head, Index total_heads) {
  using A = Accumulator<T>;
  detail::check_attention("attention_backward", shape, qkv.rows(), qkv.columns(), y.rows(), y.columns(),
                          log_sum_exp.size());
  detail::check_same_shape("attention_backward", y, dy);
  detail::check_same_shape("attention_backward", qkv, dqkv);
  const Index context = shape.context;
  const Index width = shape.head_size;
  const Index tile = detail::attention_tile<A>(context);
  const detail::RandomMask mask(stream, shape.dropout);
  // A key/value head and the query heads that share it go to one thread, which sums their gradients in order.
  const Index units = qkv.rows() / context * shape.key_value_heads;
  const Index grain = detail::grain_for(context * context * width * shape.group() / 3);
  device.reserve_scratch(device.parts(units, grain),
                         detail::attention_scratch<A>(shape, 3, 11) * static_cast<Index>(sizeof(A)));

  device.parallel_for(units, grain, [&](Range range, Index part) {
    for (Index unit = range.begin; unit < range.end; ++unit) {
      const Index sample = unit / shape.key_value_heads;
      const Index shared = unit % shape.key_value_heads;
      const Range rows{sample * context, (sample + 1) * context};
      const detail::PackedHeads<const T> packed{qkv.row_range(rows), shape};
      const detail::PackedHeads<T> gradient{dqkv.row_range(rows), shape};
      detail::ScratchCursor<A> scratch(device.scratch(part, 0));
      const Index tile_elements = tile * detail::padded_context(context);
      detail::AttentionGradients<A> at{};
      at.weights = scratch.take(tile_elements);
      at.gradients = scratch.take(tile_elements);
      at.dropped = scratch.take(tile_elements);
      A* const factors = scratch.take(detail::padded_context(context));
      at.key_panels = detail::pack_head<T>(packed.key(shared), false, scratch);
      at.transposed_key_panels = detail::pack_head<T>(packed.key(shared), true, scratch);
      at.transposed_value_panels = detail::pack_head<T>(packed.value(shared), true, scratch);
      at.dkey = detail::head_result<T>(gradient.key(shared), scratch);
      at.dvalue = detail::head_result<T>(gradient.value(shared), scratch);
      // Every tile of every query head of the group adds to these.
      for (Index r = 0; r < context; ++r) {
        std::fill_n(at.dkey.row(r), width, A{0});
        std::fill_n(at.dvalue.row(r), width, A{0});
      }
      const detail::ScratchCursor<A> per_head = scratch;
      for (Index h = shared * shape.group(); h < (shared + 1) * shape.group(); ++h) {
        scratch = per_head;
        const Range columns{h * width, (h + 1) * width};
        const Matrix<const T> doutput = dy.row_range(rows).column_range(columns);
        at.query = detail::head_view<T>(packed.query(h), scratch);
        at.output = detail::head_view<T>(y.row_range(rows).column_range(columns), scratch);
        at.doutput = detail::head_view<T>(doutput, scratch);
        at.query_panels = detail::pack_head<T>(packed.query(h), false, scratch);
        at.doutput_panels = detail::pack_head<T>(doutput, false, scratch);
        at.dquery = detail::head_result<T>(gradient.query(h), scratch);
        at.log_sum_exp = log_sum_exp.data() + (sample * shape.heads + h) * context;
        const Index global_head = (first_sample + sample) * total_heads + first_head + h;
        const detail::AttentionHead<A> head{shape, static_cast<A>(1.0 / std::sqrt(static_cast<double>(width))),
                                            shape.dropout > 0.0 ? &mask : nullptr,
                                            static_cast<std::uint64_t>(global_head * context * context), factors};
        for (Index first = 0; first < context; first += tile)
          detail::attention_backward_tile<A>(head, at, {first, std::min(first + tile, context)});
        detail::store_head<T>(at.dquery, gradient.query(h));
      }
      detail::store_head<T>(at.dkey, gradient.key(shared));
      detail::store_head<T>(at.dvalue, gradient.value(shared));
    }
  });
}

}  // namespace dtrain::ops
