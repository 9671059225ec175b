// AdamW: Adam with weight decay kept apart from the gradient.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/optimizer.hpp"
#include "dtrain/optim/optimizer.hpp"

namespace dtrain::optim {

/// I. Loshchilov and F. Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2. With g the scaled
/// gradient, t the step from 1 and λ the decay (0 for parameters that take none):
///
///     m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
///     w ← w (1 − lr λ) − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  static constexpr int states = 2;
  static constexpr std::array<std::string_view, states> state_names{"first_moment", "second_moment"};

  /// See `OptimizerFor`. All spans have the same length.
  template <class T, class G, class Device>
  void update(Device& device, std::span<T> parameters, std::span<const G> gradients,
              std::array<std::span<T>, states> state, double learning_rate, double gradient_scale, Index step,
              bool decay) const {
    ops::adamw_update<T, G>(device, parameters, gradients, state[0], state[1],
                            ops::AdamWStep{.learning_rate = learning_rate,
                                           .beta1 = beta1,
                                           .beta2 = beta2,
                                           .epsilon = epsilon,
                                           .weight_decay = decay ? weight_decay : 0.0,
                                           .gradient_scale = gradient_scale,
                                           .step = step});
  }

  /// Throws ConfigurationError unless 0 <= beta < 1, epsilon > 0 and weight_decay >= 0.
  void validate() const {
    // Written so that NaN fails too.
    if (!(beta1 >= 0 && beta1 < 1))
      throw ConfigurationError(concatenate("AdamW: beta1 is ", beta1, ", but must lie in [0, 1)"));
    if (!(beta2 >= 0 && beta2 < 1))
      throw ConfigurationError(concatenate("AdamW: beta2 is ", beta2, ", but must lie in [0, 1)"));
    if (!(epsilon > 0)) throw ConfigurationError(concatenate("AdamW: epsilon is ", epsilon, ", but must be positive"));
    if (!(weight_decay >= 0))
      throw ConfigurationError(concatenate("AdamW: weight_decay is ", weight_decay, ", but must not be negative"));
  }

  friend constexpr bool operator==(const AdamW&, const AdamW&) = default;
};

static_assert(OptimizerFor<AdamW, Host, float> && OptimizerFor<AdamW, Host, double>);

}  // namespace dtrain::optim

namespace dtrain {
using optim::AdamW;
}  // namespace dtrain
