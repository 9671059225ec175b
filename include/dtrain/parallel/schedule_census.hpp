// Counts a table once, so that every rule of the judge can ask where a thing is done.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule::detail {

// Where the one row of each kind, chunk and micro-batch is. Rows must name chunks and micro-batches that exist.
class Census {
 public:
  static constexpr int nowhere = -1;

  constexpr Census(const std::vector<Action>& actions, const VirtualPipeline& pipeline, int stage, int micro_batches)
      : chunks_(pipeline.chunks),
        micro_batches_(micro_batches),
        rows_(static_cast<std::size_t>(action_kinds * chunks_ * micro_batches), nowhere),
        last_(static_cast<std::size_t>(chunks_ * micro_batches), nowhere),
        partners_(actions.size(), nowhere) {
    const Action* const row = actions.data();
    const int count = static_cast<int>(actions.size());
    int* const rows = rows_.data();
    int* const last = last_.data();
    int* const partners = partners_.data();
    for (int i = 0; i < count; ++i) {
      const int life = row[i].chunk * micro_batches + row[i].micro_batch;
      int& place = rows[static_cast<int>(row[i].kind) * chunks_ * micro_batches + life];
      if (place != nowhere && repeated_ == nowhere) repeated_ = i;
      if (place == nowhere) place = i;
      last[life] = i;
      if (is_hand(row[i].kind)) last[giving_chunk(row[i]) * micro_batches + row[i].micro_batch] = i;
      if (is_message(row[i].kind)) partners[i] = partner_of(pipeline, row[i].kind, {stage, row[i].chunk}).stage;
    }
  }

  /// For each micro-batch, the first row that does this with it on the chunk.
  [[nodiscard]] constexpr const int* rows_of(ActionKind kind, int chunk) const {
    return rows_.data() + (static_cast<int>(kind) * chunks_ + chunk) * micro_batches_;
  }
  /// For each micro-batch on each chunk, its last row.
  [[nodiscard]] constexpr const int* last_rows() const { return last_.data(); }
  /// For each row, the stage that it exchanges a message with; nowhere for rows without messages.
  [[nodiscard]] constexpr const int* partners() const { return partners_.data(); }
  /// The first row that does again what was done before.
  [[nodiscard]] constexpr int repeated() const { return repeated_; }

 private:
  int chunks_;
  int micro_batches_;
  int repeated_ = nowhere;
  std::vector<int> rows_;
  std::vector<int> last_;
  std::vector<int> partners_;
};

}  // namespace dtrain::schedule::detail
