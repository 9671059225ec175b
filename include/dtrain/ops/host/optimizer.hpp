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
#include "dtrain/ops/host/exp.hpp"

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

namespace detail {

/// What is the same for all elements of a step.
template <class A>
struct AdamWFactors {
  A kept, step_size, root_correction, beta1, beta2, rest1, rest2, epsilon, gradient_scale;

  explicit AdamWFactors(const AdamWStep& options)
      : kept(static_cast<A>(1.0 - options.learning_rate * options.weight_decay)),
        step_size(
            static_cast<A>(options.learning_rate / (1.0 - std::pow(options.beta1, static_cast<double>(options.step))))),
        root_correction(
            static_cast<A>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, static_cast<double>(options.step))))),
        beta1(static_cast<A>(options.beta1)),
        beta2(static_cast<A>(options.beta2)),
        rest1(static_cast<A>(1.0 - options.beta1)),
        rest2(static_cast<A>(1.0 - options.beta2)),
        epsilon(static_cast<A>(options.epsilon)),
        gradient_scale(static_cast<A>(options.gradient_scale)) {}
};

// The factors come by value and the arrays are different buffers: nothing that the loop stores can change them, which
// it must know to be vectorised.
template <Scalar T, Scalar G>
void adamw_range(Index count, const AdamWFactors<Accumulator<T>> factors, T* __restrict w, const G* __restrict g,
                 T* __restrict m, T* __restrict v) {
  using A = Accumulator<T>;
  for (Index i = 0; i < count; ++i) {
    const A gradient = static_cast<A>(static_cast<Accumulator<G>>(g[i])) * factors.gradient_scale;
    const A first = factors.beta1 * static_cast<A>(m[i]) + factors.rest1 * gradient;
    const A second = factors.beta2 * static_cast<A>(v[i]) + factors.rest2 * gradient * gradient;
    const A denominator = sqrt_of(second) * factors.root_correction + factors.epsilon;
    m[i] = static_cast<T>(first);
    v[i] = static_cast<T>(second);
    w[i] = static_cast<T>(static_cast<A>(w[i]) * factors.kept - factors.step_size * first / denominator);
  }
}

}  // namespace detail

/// AdamW with decoupled decay (Loshchilov and Hutter, ICLR 2019, algorithm 2), in PyTorch's order of operations:
/// w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps).
/// Gradients may be of another type, `G`. Throws Error when `step` is below 1 or the lengths differ.
template <Scalar T, Scalar G = T>
void adamw_update(Host& device, std::span<T> parameters, ReadSpan<G> gradients, std::span<T> first_moment,
                  std::span<T> second_moment, const AdamWStep& options) {
  const auto count = static_cast<Index>(parameters.size());
  detail::check_length("adamw_update", "the gradient", gradients.size(), count);
  detail::check_length("adamw_update", "the first moment", first_moment.size(), count);
  detail::check_length("adamw_update", "the second moment", second_moment.size(), count);
  if (options.step < 1) throw Error(concatenate("adamw_update: step ", options.step, " is given; steps count from 1."));

  const detail::AdamWFactors<Accumulator<T>> factors(options);
  device.parallel_for(count, detail::grain_for(4), [&](Range range) {
    detail::adamw_range(range.size(), factors, parameters.data() + range.begin, gradients.data() + range.begin,
                        first_moment.data() + range.begin, second_moment.data() + range.begin);
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

namespace detail {

template <class A>
struct SgdFactors {
  A rate, decay, gradient_scale, momentum, fresh;
  bool first_step, nesterov;

  explicit SgdFactors(const SgdStep& options)
      : rate(static_cast<A>(options.learning_rate)),
        decay(static_cast<A>(options.weight_decay)),
        gradient_scale(static_cast<A>(options.gradient_scale)),
        momentum(static_cast<A>(options.momentum)),
        fresh(static_cast<A>(1.0 - options.dampening)),
        first_step(options.step == 1),
        nesterov(options.nesterov) {}
};

template <Scalar T, Scalar G>
void sgd_range(Index count, const SgdFactors<Accumulator<T>> factors, T* __restrict w, const G* __restrict g,
               T* __restrict b) {
  using A = Accumulator<T>;
  if (b == nullptr) {
    for (Index i = 0; i < count; ++i) {
      const A weight = static_cast<A>(w[i]);
      const A gradient =
          static_cast<A>(static_cast<Accumulator<G>>(g[i])) * factors.gradient_scale + factors.decay * weight;
      w[i] = static_cast<T>(weight - factors.rate * gradient);
    }
    return;
  }
  for (Index i = 0; i < count; ++i) {
    const A weight = static_cast<A>(w[i]);
    const A gradient =
        static_cast<A>(static_cast<Accumulator<G>>(g[i])) * factors.gradient_scale + factors.decay * weight;
    const A buffer = factors.first_step ? gradient : factors.momentum * static_cast<A>(b[i]) + factors.fresh * gradient;
    b[i] = static_cast<T>(buffer);
    w[i] = static_cast<T>(weight - factors.rate * (factors.nesterov ? gradient + factors.momentum * buffer : buffer));
  }
}

}  // namespace detail

/// SGD as PyTorch defines it: g += wd w; b = momentum b + (1 - dampening) g (b = g at step 1);
/// w -= lr (nesterov ? g + momentum b : b). With momentum 0 the buffer is unused and may be empty.
/// Gradients may be of another type, `G`. Throws Error when `step` is below 1 or the lengths differ.
template <Scalar T, Scalar G = T>
void sgd_update(Host& device, std::span<T> parameters, ReadSpan<G> gradients, std::span<T> momentum_buffer,
                const SgdStep& options) {
  const auto count = static_cast<Index>(parameters.size());
  const bool buffered = options.momentum != 0.0;
  detail::check_length("sgd_update", "the gradient", gradients.size(), count);
  if (buffered) detail::check_length("sgd_update", "the momentum buffer", momentum_buffer.size(), count);
  if (options.step < 1) throw Error(concatenate("sgd_update: step ", options.step, " is given; steps count from 1."));

  const detail::SgdFactors<Accumulator<T>> factors(options);
  device.parallel_for(count, detail::grain_for(4), [&](Range range) {
    T* const buffer = buffered ? momentum_buffer.data() + range.begin : nullptr;
    detail::sgd_range(range.size(), factors, parameters.data() + range.begin, gradients.data() + range.begin, buffer);
  });
}

}  // namespace dtrain::ops
