// How far training has come: updates made and updates skipped.
#pragma once

#include "dtrain/core/scalar.hpp"

namespace dtrain::optim {

/// A value that is saved and restored with the weights. Only updates that were made move the learning-rate schedule
/// and the optimizer's bias correction; a skipped one (see `ClipVerdict`) consumes its data and nothing else.
struct TrainingClock {
  Index updates = 0;
  Index skipped = 0;

  /// Counts one attempted step.
  constexpr void advance(bool updated) { ++(updated ? updates : skipped); }

  /// The argument of the schedule for the next update: 0 before the first.
  [[nodiscard]] constexpr Index schedule_step() const { return updates; }
  /// The `step` of the optimizer for the next update: 1 for the first.
  [[nodiscard]] constexpr Index optimizer_step() const { return updates + 1; }
  /// Steps attempted so far: made and skipped.
  [[nodiscard]] constexpr Index attempts() const { return updates + skipped; }

  friend constexpr bool operator==(const TrainingClock&, const TrainingClock&) = default;
};

}  // namespace dtrain::optim
