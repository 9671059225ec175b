// Gives micro-batches their activation arenas: which slot of a chunk each lives in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dtrain/parallel/schedule.hpp"

namespace dtrain::schedule {

/// Gives every micro-batch the lowest slot of a chunk that is free while it lives there, and sets the numbers of slots.
/// A micro-batch lives on a chunk from its first row to its last; a hand-over is a row of both its chunks. Rows of one
/// group happen together, so that a slot whose last message is sent by a group may be received into by the same group.
/// Rows with a negative micro-batch or chunk are left alone.
constexpr void assign_slots(Table& table) {
  constexpr int free = -1;
  Action* const actions = table.actions.data();
  const std::size_t rows = table.actions.size();
  int micro_batches = 0;
  int chunks = table.chunks();
  for (std::size_t row = 0; row < rows; ++row) {
    micro_batches = std::max(micro_batches, actions[row].micro_batch + 1);
    chunks = std::max(chunks, actions[row].chunk + 1);
  }
  const auto lives = static_cast<std::size_t>(chunks * micro_batches);
  std::vector<std::size_t> last_rows(lives, 0);
  std::vector<int> homes(lives, free);
  std::vector<int> occupants(lives, free);
  std::size_t* const last = last_rows.data();
  int* const home = homes.data();
  int* const occupant = occupants.data();  // of each chunk's slots; a chunk never needs more than micro_batches
  // The life of a row's micro-batch on a chunk; none where the row makes no sense.
  const auto life = [&](const Action& action, int chunk) {
    const bool exists = action.micro_batch >= 0 && chunk >= 0 && chunk < chunks;
    return exists ? chunk * micro_batches + action.micro_batch : free;
  };
  const auto giver = [&](const Action& action) {
    return is_hand(action.kind) ? life(action, giving_chunk(action)) : free;
  };
  for (std::size_t row = 0; row < rows; ++row) {
    if (const int here = life(actions[row], actions[row].chunk); here != free) last[here] = row;
    if (const int other = giver(actions[row]); other != free) last[other] = row;
  }

  table.slots.assign(static_cast<std::size_t>(chunks), 0);
  int* const slots = table.slots.data();
  const auto leave = [&](std::size_t row, int here) {
    if (here == free || last[here] != row || home[here] == free) return;
    occupant[here / micro_batches * micro_batches + home[here]] = free;
  };
  const auto enter = [&](int here) {
    if (home[here] == free) {
      const int chunk = here / micro_batches;
      int* const of_chunk = occupant + chunk * micro_batches;
      int slot = 0;
      while (of_chunk[slot] != free) ++slot;
      of_chunk[slot] = here;
      home[here] = slot;
      slots[chunk] = std::max(slots[chunk], slot + 1);
    }
    return home[here];
  };
  for (std::size_t begin = 0, end = 0; begin < rows; begin = end) {
    for (end = begin; end + 1 < rows && actions[end].grouped_with_next;) ++end;
    ++end;
    const bool exchange = is_message(actions[begin].kind);
    // Messages leave before others take their slots; a computation or a hand-over ends after it began.
    for (std::size_t row = begin; exchange && row < end; ++row) leave(row, life(actions[row], actions[row].chunk));
    for (std::size_t row = begin; row < end; ++row) {
      if (const int here = life(actions[row], actions[row].chunk); here != free) actions[row].slot = enter(here);
      if (const int other = giver(actions[row]); other != free) actions[row].from_slot = enter(other);
    }
    if (exchange) continue;
    leave(begin, life(actions[begin], actions[begin].chunk));
    leave(begin, giver(actions[begin]));
  }
}

}  // namespace dtrain::schedule
