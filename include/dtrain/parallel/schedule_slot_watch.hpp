// Watches the slots of one table: who lives where, and whether anybody is overwritten.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/schedule_verdict.hpp"

namespace dtrain::schedule::detail {

// Goes through a well-formed table once. `last_rows` holds, for each micro-batch on each chunk, its last row.
class SlotWatch {
 public:
  constexpr SlotWatch(const Table& table, const int* last_rows, int chunks, int micro_batches, int limit)
      : table_(table),
        last_(last_rows),
        chunks_(chunks),
        micro_batches_(micro_batches),
        limit_(limit),
        homes_(static_cast<std::size_t>(chunks * micro_batches), nobody),
        first_slots_(static_cast<std::size_t>(chunks), 0) {
    int slots = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      first_slots_[static_cast<std::size_t>(chunk)] = slots;
      slots += table.slots_of(chunk);
    }
    owners_.resize(static_cast<std::size_t>(slots), nobody);
  }

  // Written out: nvcc takes the implicit one for not constexpr.
  constexpr ~SlotWatch() = default;

  // Whether no slot is taken twice, nobody moves, and no more live at once than allowed.
  constexpr bool kept() {
    const Action* const action = table_.actions.data();
    const int rows = static_cast<int>(table_.actions.size());
    for (int begin = 0, end = 0; begin < rows; begin = end) {
      for (end = begin; action[end].grouped_with_next;) ++end;  // the last row joins nothing: the table is well formed
      ++end;
      const bool exchange = is_message(action[begin].kind);
      // Messages of a group leave as others arrive: slots that end here may be taken by what begins here.
      for (int row = begin; exchange && row < end; ++row) leave(row, action[row].chunk);
      for (int row = begin; row < end; ++row) {
        if (!enter(row, action[row].chunk, action[row].slot)) return false;
        if (is_hand(action[row].kind) && !enter(row, giving_chunk(action[row]), action[row].from_slot)) return false;
      }
      if (exchange) continue;
      leave(begin, action[begin].chunk);
      if (is_hand(action[begin].kind)) leave(begin, giving_chunk(action[begin]));
    }
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      count_ = table_.slots_of(chunk);
      if (count_ > limit_) return fail(Failure::in_flight_above_limit, 0, chunk);
    }
    return true;
  }

  [[nodiscard]] constexpr Failure failure() const { return failure_; }
  [[nodiscard]] constexpr int row() const { return row_; }
  [[nodiscard]] constexpr int chunk() const { return chunk_; }
  [[nodiscard]] constexpr int count() const { return count_; }
  [[nodiscard]] constexpr int other_micro_batch() const { return other_micro_batch_; }

 private:
  static constexpr int nobody = -1;

  constexpr int& home(int chunk, int micro_batch) {
    return homes_[static_cast<std::size_t>(chunk * micro_batches_ + micro_batch)];
  }
  constexpr int& owner(int chunk, int slot) {
    return owners_[static_cast<std::size_t>(first_slots_[static_cast<std::size_t>(chunk)] + slot)];
  }

  constexpr void leave(int row, int chunk) {
    const int k = table_.actions[static_cast<std::size_t>(row)].micro_batch;
    const int slot = home(chunk, k);
    if (last_[chunk * micro_batches_ + k] != row || slot == nobody) return;
    owner(chunk, slot) = nobody;
    --alive_;
  }
  constexpr bool enter(int row, int chunk, int slot) {
    const int k = table_.actions[static_cast<std::size_t>(row)].micro_batch;
    if (int& here = home(chunk, k); here == nobody) {
      count_ = ++alive_;
      if (alive_ > limit_) return fail(Failure::in_flight_above_limit, row, chunk);
      other_micro_batch_ = owner(chunk, slot);
      if (other_micro_batch_ != nobody) return fail(Failure::slot_overwritten, row, chunk);
      owner(chunk, slot) = k;
      here = slot;
    } else if (here != slot) {
      other_micro_batch_ = k;
      count_ = slot;
      return fail(Failure::slot_overwritten, row, chunk);
    }
    return true;
  }
  constexpr bool fail(Failure failure, int row, int chunk) {
    failure_ = failure;
    row_ = row;
    chunk_ = chunk;
    return false;
  }

  const Table& table_;
  const int* last_;
  int chunks_;
  int micro_batches_;
  int limit_;
  int alive_ = 0;
  std::vector<int> homes_;
  std::vector<int> owners_;
  std::vector<int> first_slots_;
  Failure failure_ = Failure::none;
  int row_ = 0;
  int chunk_ = 0;
  int count_ = 0;
  int other_micro_batch_ = 0;
};

}  // namespace dtrain::schedule::detail
