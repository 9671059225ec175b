// The optimizer of one rank: its state beside the parameters, and the update of all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dtrain/core/view.hpp"
#include "dtrain/device/arena.hpp"
#include "dtrain/optim/optimizer.hpp"
#include "dtrain/parallel/parameter_map.hpp"

namespace dtrain::train {

/// State for a region of parameters of type `T` that `map` describes.
template <class Optimizer, Scalar T, class Device>
class OptimizerState {
  static_assert(optim::OptimizerFor<Optimizer, Device, T>,
                "dtrain: this is not an optimizer: it lacks states, state_names or update");

 public:
  static constexpr auto states = static_cast<std::size_t>(Optimizer::states);

  OptimizerState(Device& device, Index parameters, const std::vector<parallel::LocalParameter>& map)
      : device_(device), size_(parameters), arena_(device.allocate(bytes_for(parameters), Contents::zero)) {
    // Neighbours of one decay are updated in one sweep: the padding between them stays 0. Sorted by place, since the
    // map's order is that of the model, and a sweep may not run over parameters of the other kind in between.
    std::vector<Run> sorted;
    for (const parallel::LocalParameter& parameter : map) sorted.push_back({parameter.range(), parameter.decay});
    std::sort(sorted.begin(), sorted.end(),
              [](const Run& left, const Run& right) { return left.range.begin < right.range.begin; });
    for (const Run& run : sorted) {
      if (!runs_.empty() && runs_.back().decay == run.decay)
        runs_.back().range.end = run.range.end;
      else
        runs_.push_back(run);
    }
  }

  /// Bytes of the state of so many parameters.
  [[nodiscard]] static constexpr Index bytes_for(Index parameters) {
    return Optimizer::states * parameters * static_cast<Index>(sizeof(T));
  }
  [[nodiscard]] Index bytes() const { return arena_.bytes(); }
  /// State number `which`, laid out as the parameters are.
  [[nodiscard]] std::span<T> state(std::size_t which) {
    return arena_.template elements<T>(static_cast<Index>(which) * size_ * static_cast<Index>(sizeof(T)), size_);
  }

  void update(const Optimizer& optimizer, std::span<T> parameters, std::span<const T> gradients, double learning_rate,
              double gradient_scale, Index step) {
    for (const Run& run : runs_) {
      const auto begin = static_cast<std::size_t>(run.range.begin);
      const auto size = static_cast<std::size_t>(run.range.size());
      std::array<std::span<T>, states> state_spans;
      for (std::size_t s = 0; s < states; ++s) state_spans[s] = state(s).subspan(begin, size);
      optimizer.update(device_, parameters.subspan(begin, size), gradients.subspan(begin, size), state_spans,
                       learning_rate, gradient_scale, step, run.decay);
    }
  }

 private:
  struct Run {
    Range range;
    bool decay = false;
  };

  Device& device_;
  Index size_;
  typename Device::Arena arena_;
  std::vector<Run> runs_{};
};

}  // namespace dtrain::train
