// Stochastic gradient descent with momentum.
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

/// With g the scaled gradient, μ the momentum, τ the dampening and λ the decay (0 for parameters that take none),
/// in the form of I. Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013,
/// as PyTorch states it:
///
///     g ← g + λ w
///     b ← g at the first step, then μ b + (1 − τ) g
///     w ← w − lr · (g + μ b  if nesterov, else b)
///
/// Unlike AdamW's, this decay passes through the momentum: it is the gradient of λ/2 |w|².
struct Sgd {
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;

  static constexpr int states = 1;
  static constexpr std::array<std::string_view, states> state_names{"momentum"};

  /// See `OptimizerFor`. All spans have the same length.
  template <class T, class G, class Device>
  void update(Device& device, std::span<T> parameters, std::span<const G> gradients,
              std::array<std::span<T>, states> state, double learning_rate, double gradient_scale, Index step,
              bool decay) const {
    ops::sgd_update<T, G>(device, parameters, gradients, state[0],
                          ops::SgdStep{.learning_rate = learning_rate,
                                       .momentum = momentum,
                                       .dampening = dampening,
                                       .nesterov = nesterov,
                                       .weight_decay = decay ? weight_decay : 0.0,
                                       .gradient_scale = gradient_scale,
                                       .step = step});
  }

  /// Throws ConfigurationError for negative numbers, and for nesterov without momentum or with dampening.
  void validate() const {
    if (!(momentum >= 0))
      throw ConfigurationError(concatenate("Sgd: momentum is ", momentum, ", but must not be negative"));
    if (!(weight_decay >= 0))
      throw ConfigurationError(concatenate("Sgd: weight_decay is ", weight_decay, ", but must not be negative"));
    if (!(dampening >= 0 && dampening <= 1))
      throw ConfigurationError(concatenate("Sgd: dampening is ", dampening, ", but must lie in [0, 1]"));
    if (nesterov && (momentum == 0 || dampening != 0))
      throw ConfigurationError(concatenate("Sgd: nesterov needs a momentum and no dampening, but momentum is ",
                                           momentum, " and dampening ", dampening));
  }

  friend constexpr bool operator==(const Sgd&, const Sgd&) = default;
};

static_assert(OptimizerFor<Sgd, Host, float> && OptimizerFor<Sgd, Host, double>);

}  // namespace dtrain::optim

namespace dtrain {
using optim::Sgd;
}  // namespace dtrain
