// Clipping gradients by their global norm, and the verdict to skip an update whose norm is not finite.
#pragma once

#include <cmath>
#include <span>

#include "dtrain/ops/host/reduce.hpp"

namespace dtrain::optim {

/// Σ g² of one rank's share of the gradients, in double. Shares are combined by adding `squares` (one all-reduce of
/// one number over all axes), after which `norm()` is the global L2 norm on every rank.
///
/// Each logical element must be counted once in the whole mesh: a gradient that several ranks hold alike (replicated
/// over the tensor axis, a copy of a tied weight, a data-parallel replica) is counted by one of them and added with
/// `counted = false` by the rest.
struct GradientNorm {
  double squares = 0;

  template <class T, class Device>
  void add(Device& device, std::span<const T> gradient, bool counted = true) {
    if (counted) squares += ops::sum_of_squares(device, gradient);
  }

  GradientNorm& operator+=(const GradientNorm& other) {
    squares += other.squares;
    return *this;
  }

  [[nodiscard]] double norm() const { return std::sqrt(squares); }
};

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
