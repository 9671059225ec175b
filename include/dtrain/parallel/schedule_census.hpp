// Counts a table once, so that every rule of the judge can ask where a thing is done.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule::detail {

// Where the one row of each kind and micro-batch is. Rows must name micro-batches that exist.
class Census {
 public:
  static constexpr int nowhere = -1;
  static constexpr int kinds = 6;

  constexpr Census(const std::vector<Action>& actions, int micro_batches)
      : micro_batches_(micro_batches),
        rows_(static_cast<std::size_t>(kinds * micro_batches), nowhere),
        last_(static_cast<std::size_t>(micro_batches), nowhere) {
    const Action* const row = actions.data();
    const int count = static_cast<int>(actions.size());
    int* const rows = rows_.data();
    int* const last = last_.data();
    for (int i = 0; i < count; ++i) {
      int& place = rows[static_cast<int>(row[i].kind) * micro_batches + row[i].micro_batch];
      if (place != nowhere && repeated_ == nowhere) repeated_ = i;
      if (place == nowhere) place = i;
      last[row[i].micro_batch] = i;
    }
  }

  /// For each micro-batch, the first row that does this with it.
  [[nodiscard]] constexpr const int* rows_of(ActionKind kind) const {
    return rows_.data() + static_cast<int>(kind) * micro_batches_;
  }
  /// For each micro-batch, its last row.
  [[nodiscard]] constexpr const int* last_rows() const { return last_.data(); }
  /// The first row that does again what was done before.
  [[nodiscard]] constexpr int repeated() const { return repeated_; }

 private:
  int micro_batches_;
  int repeated_ = nowhere;
  std::vector<int> rows_;
  std::vector<int> last_;
};

}  // namespace dtrain::schedule::detail
