// Pipeline schedules written outside the library: two give compute orders, one of them for several chunks per stage and
// with the backward pass in two parts, and one gives whole tables. All are judged by the compiler and pass the
// conformance suite; the program prints their timelines. A fourth is read from text. With a path as argument, the
// program draws a picture there.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/parallel/schedule_csv.hpp"
#include "dtrain/parallel/schedule_picture.hpp"
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

// [snippet chunks]
/// All micro-batches forward through every chunk, then back the same way; gradients of weights come last of all.
struct ThereAndBack {
  static constexpr std::string_view name = "ThereAndBack";

  static constexpr std::vector<schedule::Compute> order(int /*stage*/, int /*stages*/, int micro_batches, int chunks) {
    std::vector<schedule::Compute> items;
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int k = 0; k < micro_batches; ++k) items.push_back({schedule::Work::forward, k, chunk});
    for (int chunk = chunks; chunk-- > 0;)
      for (int k = 0; k < micro_batches; ++k) items.push_back({schedule::Work::backward_input, k, chunk});
    for (int chunk = chunks; chunk-- > 0;)
      for (int k = 0; k < micro_batches; ++k) items.push_back({schedule::Work::backward_weight, k, chunk});
    return items;
  }

  static constexpr int in_flight(int /*stage*/, int /*stages*/, int micro_batches, int chunks) {
    return micro_batches * chunks;
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
static_assert(schedule::RequireSoundSchedule<ThereAndBack, 4, 2>::value);  // four stages of two chunks
static_assert(schedule::RequireSoundSchedule<OneByOne, 4>::value);
// [end snippet]

void show(const std::string& name, const std::vector<schedule::Table>& tables) {
  std::printf("%s, %d stages: bubble %.3f, slots on stage 0:", name.c_str(), static_cast<int>(tables.size()),
              schedule::bubble_of(tables));
  for (const int slots : tables[0].slots) std::printf(" %d", slots);
  std::printf("\n%s\n", schedule::draw(tables).c_str());
}

// [snippet csv]
/// One line per rank, idle cells empty; F, I and W are forward and the two parts of the backward pass.
constexpr std::string_view csv =
    "0F0,0F1,,,0I0,0W0,0I1,0W1\n"
    ",1F0,1I0,1F1,1I1,1W0,1W1\n";

std::vector<schedule::Table> read_tables() {
  const schedule::Orders orders = schedule::parse_csv(csv, "two_ranks.csv");
  return schedule::judged_tables(orders);
}
// [end snippet]

int main(int argc, char** argv) {
  try {
    // [snippet conformance]
    dtrain::testing::check_schedule<Waves>();
    dtrain::testing::check_schedule<ThereAndBack>();
    dtrain::testing::check_schedule<OneByOne>();
    // [end snippet]
    show("Waves", schedule::build_tables<Waves>(3, 7));
    show("ThereAndBack", schedule::build_tables<ThereAndBack>(2, 3, 2));
    show("OneByOne", schedule::build_tables<OneByOne>(3, 2));
    show("two_ranks.csv", read_tables());
    if (argc > 1) {
      std::FILE* const file = std::fopen(argv[1], "w");
      if (file == nullptr) throw dtrain::Error(std::string("custom_schedule: cannot write ") + argv[1]);
      // [snippet picture]
      const std::vector<schedule::Table> tables = schedule::build_tables<ThereAndBack>(4, 6, 2);
      const schedule::Costs costs{.forward = 1.0, .backward_input = 1.2, .backward_weight = 0.8};
      const std::string picture = schedule::svg(tables, costs, "ThereAndBack");
      // [end snippet]
      std::fputs(picture.c_str(), file);
      std::fclose(file);
    }
  } catch (const dtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
