// Two pipeline schedules written outside the library: one gives compute orders, one gives whole tables.
// Both are judged by the compiler and pass the conformance suite; the program prints their timelines.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedule_text.hpp"
#include "dtrain/testing/schedule_conformance.hpp"

namespace schedule = dtrain::schedule;

// [snippet order]
/// GPipe in waves of as many micro-batches as there are stages: memory for one wave, whatever the batch.
struct Waves {
  static constexpr std::string_view name = "Waves";

  static constexpr std::vector<schedule::Compute> order(int /*stage*/, int stages, int micro_batches) {
    std::vector<schedule::Compute> items;
    for (int begin = 0; begin < micro_batches; begin += stages) {
      const int end = std::min(begin + stages, micro_batches);
      for (int k = begin; k < end; ++k) items.push_back({schedule::Work::forward, k});
      for (int k = begin; k < end; ++k) items.push_back({schedule::Work::backward, k});
    }
    return items;
  }

  static constexpr int in_flight(int /*stage*/, int stages, int micro_batches) {
    return std::min(stages, micro_batches);
  }
};
// [end snippet]

// [snippet plan]
/// One micro-batch at a time through the whole pipeline and back: the least memory there is, and the largest bubble.
struct OneByOne {
  static constexpr std::string_view name = "OneByOne";

  static constexpr schedule::Table plan(int stage, int stages, int micro_batches) {
    schedule::Table table;
    const bool first = stage == 0;
    const bool last = stage + 1 == stages;
    for (int k = 0; k < micro_batches; ++k) {
      if (!first) table.actions.push_back({schedule::ActionKind::receive_forward, k});
      table.actions.push_back({schedule::ActionKind::forward, k});
      if (!last) table.actions.push_back({schedule::ActionKind::send_forward, k});
      if (!last) table.actions.push_back({schedule::ActionKind::receive_backward, k});
      table.actions.push_back({schedule::ActionKind::backward, k});
      if (!first) table.actions.push_back({schedule::ActionKind::send_backward, k});
    }
    schedule::assign_slots(table);
    return table;
  }

  static constexpr int in_flight(int /*stage*/, int /*stages*/, int /*micro_batches*/) { return 1; }

  /// Only one stage works at any time.
  static constexpr double bubble(int stages, int /*micro_batches*/) { return 1 - 1.0 / stages; }
};
// [end snippet]

// [snippet judge]
static_assert(schedule::RequireSoundSchedule<Waves, 4>::value);
static_assert(schedule::RequireSoundSchedule<OneByOne, 4>::value);
// [end snippet]

template <class S>
void show(int stages, int micro_batches) {
  const std::vector<schedule::Table> tables = schedule::build_tables<S>(stages, micro_batches);
  const std::string name(S::name);
  std::printf("%s, %d stages, %d micro-batches: bubble %.3f, slots on stage 0: %d\n", name.c_str(), stages,
              micro_batches, schedule::bubble_of(tables), tables[0].slots_of(0));
  std::printf("%s\n", schedule::draw(tables).c_str());
}

int main() {
  try {
    // [snippet conformance]
    dtrain::testing::check_schedule<Waves>();
    dtrain::testing::check_schedule<OneByOne>();
    // [end snippet]
    show<Waves>(3, 7);
    show<OneByOne>(3, 2);
  } catch (const dtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
