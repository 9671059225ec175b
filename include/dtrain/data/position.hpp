// Where training stands in the data: a value that is saved with the weights and restored from them.
#pragma once

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::data {

/// The next sample of training: `index` samples of the shuffled order of `epoch` have been used.
///
/// Samples form one endless sequence, epoch after epoch, and a global batch takes the next `batch` of them. A batch
/// that meets the end of an epoch goes on in the next: nothing is dropped and nothing repeated, whatever the batch.
struct Position {
  Index epoch = 0;
  Index index = 0;

  /// The position `samples` further, where every epoch has `samples_per_epoch`. At the very end of an epoch it is the
  /// start of the next one.
  [[nodiscard]] constexpr Position advanced(Index samples, Index samples_per_epoch) const {
    const Index reached = index + samples;
    return {epoch + reached / samples_per_epoch, reached % samples_per_epoch};
  }

  friend constexpr bool operator==(const Position&, const Position&) = default;
};

/// The rows of a global batch that data rank `rank` of `ranks` takes: contiguous, and a function of these numbers
/// alone, so that every rank of the mesh can produce them without asking another. `batch` must be a multiple of
/// `ranks` for equal shares; otherwise the first ranks take one row more.
constexpr Range rows_of_rank(Index batch, Index ranks, Index rank) { return even_share(batch, ranks, rank); }

}  // namespace dtrain::data
