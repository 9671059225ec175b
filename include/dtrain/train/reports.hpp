// What a run is asked for and what it says of itself.
#pragma once

#include <functional>

#include "dtrain/core/scalar.hpp"
#include "dtrain/parallel/rank_plan.hpp"

namespace dtrain::train {

/// One training step, the same on every rank but for the times.
struct StepReport {
  Index step = 0;              ///< from 1
  double loss = 0.0;           ///< mean over the counted targets of the global batch
  double gradient_norm = 0.0;  ///< global, before clipping, without the loss scale
  double learning_rate = 0.0;
  Index tokens = 0;              ///< of the global batch
  Index counted_tokens = 0;      ///< those with a target
  double seconds = 0.0;          ///< wall time since the end of the step before
  double waiting_seconds = 0.0;  ///< of that, spent waiting for data
  bool skipped = false;          ///< gradients were not finite, or nothing was counted: weights are unchanged
  Index skipped_so_far = 0;
  double loss_scale = 1.0;  ///< that the gradients of this step were computed with

  /// Tokens per second of wall time, everything a user waits for included.
  [[nodiscard]] double tokens_per_second() const { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }
  /// The same without the time spent waiting for data.
  [[nodiscard]] double compute_tokens_per_second() const {
    const double computing = seconds - waiting_seconds;
    return computing > 0.0 ? static_cast<double>(tokens) / computing : 0.0;
  }
};

/// A pass over held-out data.
struct EvaluationReport {
  double loss_sum = 0.0;
  Index tokens = 0;
  /// Mean loss per counted token; 0 where nothing was held out.
  [[nodiscard]] double loss() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0.0; }
};

/// What `fit` does.
struct FitOptions {
  Index steps = 0;
  /// Samples of the global batch.
  Index batch = 1;
  /// Per data rank; 0: see `parallel::deal_out`.
  int micro_batches = 0;
  /// Called on rank 0 after every step.
  std::function<void(const StepReport&)> on_step{};
};

/// Bytes of one rank.
struct MemoryReport {
  parallel::MemoryPlan program{};
  Index optimizer = 0;
  [[nodiscard]] Index total() const { return program.total() + optimizer; }
};

}  // namespace dtrain::train

namespace dtrain {
using train::FitOptions;
using train::StepReport;
}  // namespace dtrain
