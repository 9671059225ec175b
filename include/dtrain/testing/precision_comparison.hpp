// Shows how far a run in narrow numbers lies from the same run in wider ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/testing/recorded_run.hpp"

namespace dtrain::testing {

namespace detail {

inline double euclidean_norm(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

inline double relative_distance(std::string_view who, const WholeTensors& expected, const WholeTensors& actual,
                                double least_norm, double bound) {
  double largest = 0.0;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end() || found->second.size() != values.size())
      throw Error(concatenate(who, " the gradient of ", name, " is there, or as long, in one run only."));
    std::vector<double> difference(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) difference[i] = found->second[i] - values[i];
    const double norm = euclidean_norm(values);
    const double distance = euclidean_norm(difference) / std::max(norm, least_norm);
    if (!(distance <= bound))
      throw Error(concatenate(who, " the gradient of ", name, " has a norm of ", norm,
                              " and differs by a relative norm of ", distance, "; ", bound, " is allowed."));
    largest = std::max(largest, distance);
  }
  return largest;
}

}  // namespace detail

/// Compares two runs of the same model and data, of which `narrow` may have another number format and another strategy:
/// in every step |a - b| / |b| of each whole tensor's gradient, in the Euclidean norm, and of loss and global norm. A
/// gradient counts as no smaller than a thousandth of the global norm: one that is 0 but for rounding has no relative
/// error. Weights are left out: AdamW's first steps take the sign of each element, whatever its size.
/// Returns the largest of them; throws Error naming the first that is above `bound`.
inline double compare_precision(const RecordedRun& wide, const RecordedRun& narrow, double bound) {
  if (wide.steps.size() != narrow.steps.size())
    throw Error(concatenate("dtrain: runs of ", wide.steps.size(), " and ", narrow.steps.size(), " steps were given."));
  double largest = 0.0;
  for (std::size_t step = 0; step < wide.steps.size(); ++step) {
    const RecordedStep& a = wide.steps[step];
    const RecordedStep& b = narrow.steps[step];
    const std::string who = concatenate("dtrain: under ", narrow.strategy, ", in step ", step, ",");
    for (const auto& [what, expected, actual] :
         {std::tuple{"loss", a.loss, b.loss}, std::tuple{"global norm", a.gradient_norm, b.gradient_norm}}) {
      const double distance = std::abs(actual - expected) / std::abs(expected);
      if (!(distance <= bound))
        throw Error(concatenate(who, " the ", what, " is ", expected, " and ", actual, ", a relative difference of ",
                                distance, "; ", bound, " is allowed."));
      largest = std::max(largest, distance);
    }
    largest =
        std::max(largest, detail::relative_distance(who, a.gradients, b.gradients, 1e-3 * a.gradient_norm, bound));
  }
  return largest;
}

}  // namespace dtrain::testing
