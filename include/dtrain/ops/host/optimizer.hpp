// The update rules of AdamW and SGD, one pass over parameters, gradients and state.
#pragma once

#include <cmath>
#include <span>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"

namespace dtrain::ops {

/// One step of AdamW. `step` counts from 1; `gradient_scale` multiplies every gradient first (clipping, loss scale).
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  Index step = 1;
};

/// AdamW with decoupled decay (Loshchilov and Hutter, ICLR 2019, algorithm 2), in PyTorch's order of operations:
/// w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps).
/// Throws Error when `step` is below 1 or the lengths differ.
template <Scalar T>
void adamw_update(Host& device, std::span<T> parameters, ReadSpan<T> gradients, std::span<T> first_moment,
                  std::span<T> second_moment, const AdamWStep& options) {
  const auto count = static_cast<Index>(parameters.size());
  detail::check_length("adamw_update", "the gradient", gradients.size(), count);
  detail::check_length("adamw_update", "the first moment", first_moment.size(), count);
  detail::check_length("adamw_update", "the second moment", second_moment.size(), count);
  if (options.step < 1) throw Error(concatenate("adamw_update: step ", options.step, " is given; steps count from 1."));

  using A = Accumulator<T>;
  const auto step = static_cast<double>(options.step);
  const A kept = static_cast<A>(1.0 - options.learning_rate * options.weight_decay);
  const A step_size = static_cast<A>(options.learning_rate / (1.0 - std::pow(options.beta1, step)));
  const A root_correction = static_cast<A>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, step)));
  const A beta1 = static_cast<A>(options.beta1);
  const A beta2 = static_cast<A>(options.beta2);
  const A rest1 = static_cast<A>(1.0 - options.beta1);
  const A rest2 = static_cast<A>(1.0 - options.beta2);
  const A epsilon = static_cast<A>(options.epsilon);
  const A gradient_scale = static_cast<A>(options.gradient_scale);

  device.parallel_for(count, detail::grain_for(4), [&](Range range) {
    // Each thread has its own range and the four spans are different buffers.
    T* __restrict const w = parameters.data() + range.begin;
    const T* __restrict const g = gradients.data() + range.begin;
    T* __restrict const m = first_moment.data() + range.begin;
    T* __restrict const v = second_moment.data() + range.begin;
    const Index length = range.size();
    for (Index i = 0; i < length; ++i) {
      const A gradient = static_cast<A>(g[i]) * gradient_scale;
      const A first = beta1 * static_cast<A>(m[i]) + rest1 * gradient;
      const A second = beta2 * static_cast<A>(v[i]) + rest2 * gradient * gradient;
      const A denominator = std::sqrt(second) * root_correction + epsilon;
      m[i] = static_cast<T>(first);
      v[i] = static_cast<T>(second);
      w[i] = static_cast<T>(static_cast<A>(w[i]) * kept - step_size * first / denominator);
    }
  });
}

/// One step of SGD. `step` counts from 1; at step 1 the momentum buffer becomes the gradient itself.
struct SgdStep {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  Index step = 1;
};

/// SGD as PyTorch defines it: g += wd w; b = momentum b + (1 - dampening) g (b = g at step 1);
/// w -= lr (nesterov ? g + momentum b : b). With momentum 0 the buffer is unused and may be empty.
/// Throws Error when `step` is below 1 or the lengths differ.
template <Scalar T>
void sgd_update(Host& device, std::span<T> parameters, ReadSpan<T> gradients, std::span<T> momentum_buffer,
                const SgdStep& options) {
  const auto count = static_cast<Index>(parameters.size());
  const bool buffered = options.momentum != 0.0;
  detail::check_length("sgd_update", "the gradient", gradients.size(), count);
  if (buffered) detail::check_length("sgd_update", "the momentum buffer", momentum_buffer.size(), count);
  if (options.step < 1) throw Error(concatenate("sgd_update: step ", options.step, " is given; steps count from 1."));

  using A = Accumulator<T>;
  const A rate = static_cast<A>(options.learning_rate);
  const A decay = static_cast<A>(options.weight_decay);
  const A gradient_scale = static_cast<A>(options.gradient_scale);
  const A momentum = static_cast<A>(options.momentum);
  const A fresh = static_cast<A>(1.0 - options.dampening);
  const bool first_step = options.step == 1;
  const bool nesterov = options.nesterov;

  device.parallel_for(count, detail::grain_for(4), [&](Range range) {
    T* const w = parameters.data();
    const T* const g = gradients.data();
    if (!buffered) {
      for (Index i = range.begin; i < range.end; ++i) {
        const A weight = static_cast<A>(w[i]);
        w[i] = static_cast<T>(weight - rate * (static_cast<A>(g[i]) * gradient_scale + decay * weight));
      }
      return;
    }
    T* const b = momentum_buffer.data();
    for (Index i = range.begin; i < range.end; ++i) {
      const A weight = static_cast<A>(w[i]);
      const A gradient = static_cast<A>(g[i]) * gradient_scale + decay * weight;
      const A buffer = first_step ? gradient : momentum * static_cast<A>(b[i]) + fresh * gradient;
      b[i] = static_cast<T>(buffer);
      w[i] = static_cast<T>(weight - rate * (nesterov ? gradient + momentum * buffer : buffer));
    }
  });
}

}  // namespace dtrain::ops
