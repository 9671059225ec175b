// The parameters of one rank's stage: where each lies, and which part of the whole tensor it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/random.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/nn/parameter.hpp"

namespace dtrain::parallel {

/// A block of a parameter: local rows and columns, and where the block begins in the whole tensor. Padding belongs to
/// no segment.
struct Segment {
  Range rows{};
  Range columns{};
  Index whole_row = 0;
  Index whole_column = 0;
  /// How many tensor ranks hold this block.
  int copies = 1;
  /// Whether this rank counts it in norms: exactly one of the ranks that hold it does.
  bool counted = true;
};

/// One parameter of a stage.
struct LocalParameter {
  std::string name;  ///< of the whole tensor
  Index whole_rows = 0;
  Index whole_columns = 1;
  bool vector = false;  ///< of one dimension
  Index unit = 0;       ///< of the model, that it belongs to
  Index offset = 0;     ///< in the stage's region, in elements
  Index rows = 0;       ///< on this rank, padding included
  Index columns = 1;
  bool decay = false;
  /// Cut over the tensor axis.
  bool divided = false;
  /// The copy of a tied parameter on a stage that does not hold the original.
  bool tied_copy = false;
  nn::Initializer initializer{};
  std::vector<Segment> segments{};

  [[nodiscard]] Index size() const { return rows * columns; }
  [[nodiscard]] Range range() const { return {offset, offset + size()}; }
};

namespace detail {

[[gnu::cold]] inline std::vector<Segment> segments_of(const nn::Parameter& parameter, int degree, int rank) {
  std::vector<Segment> segments;
  const bool by_rows = parameter.cut == nn::Cut::rows;
  const bool by_columns = parameter.cut == nn::Cut::columns;
  const nn::Features& cut = by_columns ? parameter.columns : parameter.rows;
  const bool divided = by_rows || by_columns;
  Index local = 0;
  Index whole = 0;
  for (int p = 0; p < cut.count; ++p) {
    const nn::FeaturePart& part = cut.parts[p];
    const int ranks = divided ? degree : 1;
    const Range held = part.unit_range(ranks, divided ? rank : 0);
    const Index real_end = std::min(held.end, part.units);
    const int copies = divided ? part.replicas(degree) : degree;
    const Range block{local, local + std::max<Index>(real_end - held.begin, 0) * part.unit_size};
    Segment segment{.copies = copies, .counted = rank % copies == 0};
    if (by_columns) {
      segment.rows = {0, parameter.rows.whole()};
      segment.columns = block;
      segment.whole_column = whole + held.begin * part.unit_size;
    } else {
      segment.rows = block;
      segment.columns = {0, parameter.columns.whole()};
      segment.whole_row = whole + held.begin * part.unit_size;
    }
    if (block.size() > 0) segments.push_back(segment);
    local += held.size() * part.unit_size;
    whole += part.whole();
  }
  return segments;
}

}  // namespace detail

/// Describes the shard of `parameter` that tensor rank `rank` of `degree` holds at `offset`.
[[gnu::cold]] inline LocalParameter locate_parameter(const nn::Parameter& parameter, std::string name, Index unit,
                                                     Index offset, int degree, int rank) {
  return {.name = std::move(name),
          .whole_rows = parameter.rows.whole(),
          .whole_columns = parameter.columns.whole(),
          .vector = parameter.vector(),
          .unit = unit,
          .offset = offset,
          .rows = parameter.local_rows(degree),
          .columns = parameter.local_columns(degree),
          .decay = parameter.decay,
          .divided = parameter.cut != nn::Cut::none,
          .initializer = parameter.initializer,
          .segments = detail::segments_of(parameter, degree, rank)};
}

/// Calls `visit(part of the region)` for the longest contiguous parts of a segment.
template <class Visit>
void for_each_range(const LocalParameter& parameter, const Segment& segment, Visit&& visit) {
  const Index at = parameter.offset + segment.rows.begin * parameter.columns + segment.columns.begin;
  const Index width = segment.columns.size();
  if (width == parameter.columns) {
    visit(Range{at, at + segment.rows.size() * width});
  } else {
    for (Index r = 0; r < segment.rows.size(); ++r)
      visit(Range{at + r * parameter.columns, at + r * parameter.columns + width});
  }
}

/// Calls `visit(part of the region, element of the whole tensor that it begins with)` for the longest parts that are
/// contiguous in both. Padding belongs to none.
template <class Visit>
void for_each_run(const LocalParameter& parameter, Visit&& visit) {
  for (const Segment& segment : parameter.segments) {
    const Index at = parameter.offset + segment.rows.begin * parameter.columns + segment.columns.begin;
    const Index whole = segment.whole_row * parameter.whole_columns + segment.whole_column;
    const Index width = segment.columns.size();
    if (width == parameter.columns && width == parameter.whole_columns) {
      visit(Range{at, at + segment.rows.size() * width}, whole);
    } else {
      for (Index r = 0; r < segment.rows.size(); ++r)
        visit(Range{at + r * parameter.columns, at + r * parameter.columns + width},
              whole + r * parameter.whole_columns);
    }
  }
}

/// Calls `visit(element of the region, element of the whole tensor)` for every element that is not padding.
template <class Visit>
void for_each_element(const LocalParameter& parameter, Visit&& visit) {
  for_each_run(parameter, [&](Range part, Index whole) {
    for (Index i = 0; i < part.size(); ++i) visit(part.begin + i, whole + i);
  });
}

/// The start of an element, a function of (seed, name, element of the whole tensor).
class ParameterStart {
 public:
  ParameterStart(const LocalParameter& parameter, std::uint64_t seed)
      : initializer_(parameter.initializer), stream_(seed, hash_name(parameter.name)) {}
  [[nodiscard]] double operator()(Index whole_element) const { return initializer_(stream_, whole_element); }

 private:
  nn::Initializer initializer_;
  RandomStream stream_;
};

/// Sets a parameter to its start; padding becomes 0.
template <Scalar T>
void initialize(const LocalParameter& parameter, std::uint64_t seed, std::span<T> region) {
  const ParameterStart start(parameter, seed);
  for (Index i = parameter.offset; i < parameter.range().end; ++i) region[static_cast<std::size_t>(i)] = T(0.0f);
  for_each_element(parameter, [&](Index local, Index whole) {
    region[static_cast<std::size_t>(local)] = static_cast<T>(static_cast<Accumulator<T>>(start(whole)));
  });
}

}  // namespace dtrain::parallel
