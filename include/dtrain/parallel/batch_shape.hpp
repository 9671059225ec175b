// The shape of a global batch, and how it is dealt out over ranks and micro-batches.
#pragma once

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::parallel {

/// A global batch: samples of `context` tokens, dealt out over the ranks that split the batch and then over
/// micro-batches.
struct BatchShape {
  Index samples = 1;
  Index context = 1;
  int micro_batches = 1;

  /// Rows that one of `shares` ranks takes of the batch, and of each micro-batch.
  [[nodiscard]] constexpr Index local_rows(int shares) const { return samples / shares * context; }
  [[nodiscard]] constexpr Index micro_batch_rows(int shares) const {
    return samples / shares / micro_batches * context;
  }
  friend constexpr bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// Refuses a batch that cannot be dealt out evenly to `shares` ranks, or that is longer than the model takes
/// (`max_context` of 0 is no limit); throws ConfigurationError with the numbers.
constexpr void check_batch(const BatchShape& shape, int shares, Index max_context = 0) {
  if (shape.samples < 1 || shape.micro_batches < 1 || shape.context < 1)
    throw ConfigurationError(concatenate("dtrain: a batch of ", shape.samples, " samples of ", shape.context,
                                         " tokens in ", shape.micro_batches,
                                         " micro-batches cannot be trained on; all three must be at least 1."));
  if (shape.samples % (Index{shares} * shape.micro_batches) != 0)
    throw ConfigurationError(concatenate(
        "dtrain: a batch of ", shape.samples, " samples does not divide over ", shares, " data-parallel ranks x ",
        shape.micro_batches, " micro-batches; choose a multiple of ", Index{shares} * shape.micro_batches, "."));
  if (max_context > 0 && shape.context > max_context)
    throw ConfigurationError(concatenate("dtrain: the batch has a context of ", shape.context,
                                         " tokens, but the model takes at most ", max_context, "."));
}

/// The batch for `shares` ranks and a pipeline of `stages`. `micro_batches` of 0 stands for as many as there are
/// stages, or the largest number below that deals the batch out evenly. Throws as `check_batch`.
constexpr BatchShape deal_out(Index samples, Index context, int micro_batches, int shares, int stages) {
  BatchShape shape{.samples = samples, .context = context, .micro_batches = micro_batches};
  if (micro_batches == 0) {
    shape.micro_batches = 1;
    if (samples > 0 && samples % shares == 0)
      for (int m = stages; shape.micro_batches == 1 && m > 1; --m)
        if (samples / shares % m == 0) shape.micro_batches = m;
  }
  check_batch(shape, shares);
  return shape;
}

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::BatchShape;
}  // namespace dtrain
