// Where the chunks of a model lie: the virtual stages of a pipeline, dealt out to its stages.
#pragma once

namespace dtrain::schedule {

/// How virtual stages are dealt out to stages. `looped`: virtual stage v on stage v % stages, round after round
/// (D. Narayanan et al., SC 2021, section 2.2). `v_shaped`: two chunks, the first from the first stage to the last, the
/// second from the last back to the first (P. Qi et al., "Pipeline parallelism with controllable memory", 2024).
enum class Placement : unsigned char { looped, v_shaped };

/// A chunk of a stage. `stage` is -1 beyond the ends of the pipeline.
struct Place {
  int stage = 0;
  int chunk = 0;
  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// A pipeline of `stages` stages, each of which holds `chunks` virtual stages.
struct VirtualPipeline {
  int stages = 1;
  int chunks = 1;
  Placement placement = Placement::looped;

  [[nodiscard]] constexpr int virtual_stages() const { return stages * chunks; }
  /// The number of a chunk in the order in which a micro-batch passes through them.
  [[nodiscard]] constexpr int virtual_stage(Place place) const {
    const bool back = placement == Placement::v_shaped && place.chunk % 2 == 1;
    return place.chunk * stages + (back ? stages - 1 - place.stage : place.stage);
  }
  /// Where virtual stage `number` lies.
  [[nodiscard]] constexpr Place place(int number) const {
    if (number < 0 || number >= virtual_stages()) return {-1, 0};
    const int chunk = number / stages;
    const int along = number % stages;
    const bool back = placement == Placement::v_shaped && chunk % 2 == 1;
    return {back ? stages - 1 - along : along, chunk};
  }
  friend constexpr bool operator==(const VirtualPipeline&, const VirtualPipeline&) = default;
};

}  // namespace dtrain::schedule
