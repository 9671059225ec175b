// Clipping gradients by their global norm, and the verdict to skip an update whose norm is not finite.
#pragma once

#include <cmath>

namespace dtrain::optim {

/// What to do with the gradients of a step.
struct ClipVerdict {
  /// Factor for every gradient, the loss scale divided out; 0 when the step is skipped.
  double coefficient = 1;
  /// The norm is NaN or infinite: no rank may touch weights or optimizer state, nor advance the schedule.
  bool skip = false;
  friend constexpr bool operator==(const ClipVerdict&, const ClipVerdict&) = default;
};

/// min(1, max_norm / norm): R. Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013,
/// algorithm 1. A `max_norm` of 0 or infinity turns clipping off, and a norm that is not finite asks to skip either
/// way, because Inf * 0 would write NaN into the weights. `norm` must be the global one, so that all ranks agree, and
/// that of the gradients without their `loss_scale`: it is the true gradient that is clipped.
inline ClipVerdict clip_coefficient(double norm, double max_norm, double loss_scale = 1.0) {
  if (!std::isfinite(norm)) return {.coefficient = 0, .skip = true};
  if (!(max_norm > 0) || norm <= max_norm) return {.coefficient = 1.0 / loss_scale};
  return {.coefficient = max_norm / norm / loss_scale};
}

}  // namespace dtrain::optim
