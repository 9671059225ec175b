// Dynamic loss scaling: the factor that lifts small gradients into the range of float16.
#pragma once

#include <algorithm>
#include <cmath>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::optim {

/// How the scale of the loss is chosen (P. Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2):
/// the loss, and with it every gradient, is multiplied by it for the backward pass and divided out in the update. A
/// norm that is not finite means that the scale was too large. The numbers are those of Megatron-LM and Apex.
struct LossScaling {
  double initial = 0x1p16;
  /// Steps without overflow after which the scale is multiplied by `growth`; 0: it never grows.
  Index growth_interval = 2000;
  double growth = 2.0;
  /// What the scale is divided by when it backs off.
  double backoff = 2.0;
  /// Overflows until the scale backs off, counted from the last time it grew: the last of them and each one after it.
  int hysteresis = 2;
  double minimum = 1.0;
  double maximum = 0x1p24;
  /// Training ends with an error when so many steps in a row were skipped and the scale is at its minimum; 0: never.
  Index most_skipped = 20;

  /// The same scale for ever; 1 means none.
  [[nodiscard]] static constexpr LossScaling fixed(double scale) {
    return {.initial = scale, .growth_interval = 0, .minimum = scale, .maximum = scale, .most_skipped = 0};
  }

  /// Throws ConfigurationError naming what does not fit.
  void validate() const {
    const auto positive = [](double value) { return value > 0.0 && std::isfinite(value); };
    if (!positive(minimum) || !positive(maximum) || !(initial >= minimum && initial <= maximum))
      throw ConfigurationError(concatenate("LossScaling: the scale begins at ", initial, ", but its limits are ",
                                           minimum, " and ", maximum, "; all must be positive and in this order"));
    if (!(growth >= 1.0) || !(backoff >= 1.0) || !std::isfinite(growth) || !std::isfinite(backoff))
      throw ConfigurationError(concatenate("LossScaling: growth is ", growth, " and backoff ", backoff,
                                           ", but factors must be at least 1 and finite"));
    if (hysteresis < 1 || growth_interval < 0 || most_skipped < 0)
      throw ConfigurationError(concatenate("LossScaling: hysteresis is ", hysteresis, ", growth_interval ",
                                           growth_interval, " and most_skipped ", most_skipped,
                                           "; the first must be at least 1, the others not negative"));
  }

  friend constexpr bool operator==(const LossScaling&, const LossScaling&) = default;
};

/// The scale and its counters: a value that is saved and restored with the training clock. A function of the global
/// norm alone, so that all ranks agree on it without asking each other.
struct LossScale {
  double scale = 1.0;
  Index clean_steps = 0;      ///< without overflow, since the last change or overflow
  int overflows_allowed = 1;  ///< until the scale backs off
  Index skipped_in_a_row = 0;

  [[nodiscard]] static constexpr LossScale start(const LossScaling& scaling) {
    return {.scale = scaling.initial, .overflows_allowed = scaling.hysteresis};
  }

  /// The state after a step whose gradients were finite, or overflowed. Throws NumericalError when the scale cannot
  /// be lowered any more and `most_skipped` steps in a row were skipped.
  [[nodiscard]] LossScale after(bool overflow, const LossScaling& scaling) const {
    LossScale next = *this;
    if (overflow) {
      ++next.skipped_in_a_row;
      if (scaling.most_skipped > 0 && next.skipped_in_a_row >= scaling.most_skipped && scale <= scaling.minimum)
        throw NumericalError(concatenate("dtrain: the gradients of ", next.skipped_in_a_row,
                                         " steps in a row were not finite, and the loss scale is at its minimum of ",
                                         scaling.minimum,
                                         ". Nothing was updated. A smaller scale will not help: lower "
                                         "the learning rate, or train in bfloat16."));
      next.clean_steps = 0;
      next.overflows_allowed = std::max(overflows_allowed - 1, 0);
      if (next.overflows_allowed == 0) next.scale = std::max(scale / scaling.backoff, scaling.minimum);
      return next;
    }
    next.skipped_in_a_row = 0;
    if (scaling.growth_interval > 0 && ++next.clean_steps >= scaling.growth_interval) {
      next.clean_steps = 0;
      next.overflows_allowed = scaling.hysteresis;
      next.scale = std::min(scale * scaling.growth, scaling.maximum);
    }
    return next;
  }

  friend constexpr bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace dtrain::optim

namespace dtrain {
using optim::LossScaling;
}  // namespace dtrain
