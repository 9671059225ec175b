// The optimizer of one rank: its state beside the parameters, and the update of all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dtrain/core/precision.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/arena.hpp"
#include "dtrain/ops/host/reduce.hpp"
#include "dtrain/optim/optimizer.hpp"
#include "dtrain/parallel/parameter_map.hpp"

namespace dtrain::train {

/// State for a region of parameters that `map` describes, in the numbers of `Format`: a scalar or a `Precision`. Where
/// the parameters are narrower than what is updated, master weights lie in front of the optimizer's own state.
template <class Optimizer, NumberFormat Format, class Device>
class OptimizerState {
 public:
  using Parameter = typename PrecisionOf<Format>::Parameter;
  using Gradient = typename PrecisionOf<Format>::Gradient;
  using Master = typename PrecisionOf<Format>::Master;
  static_assert(optim::OptimizerFor<Optimizer, Device, Master, Gradient>,
                "dtrain: this is not an optimizer: it lacks states, state_names or update");
  static constexpr auto states = static_cast<std::size_t>(Optimizer::states);
  static constexpr bool has_master = PrecisionOf<Format>::has_master;

  /// `seed` is that of the parameters: master weights start from the numbers that the parameters were rounded from.
  OptimizerState(Device& device, Index parameters, const std::vector<parallel::LocalParameter>& map, std::uint64_t seed)
      : device_(device), size_(parameters), arena_(device.allocate(bytes_for(parameters), Contents::zero)) {
    if constexpr (has_master)
      for (const parallel::LocalParameter& parameter : map) parallel::initialize(parameter, seed, masters());
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

  /// Bytes of the state of so many parameters, master weights included.
  [[nodiscard]] static constexpr Index bytes_for(Index parameters) {
    return (Optimizer::states + (has_master ? 1 : 0)) * parameters * static_cast<Index>(sizeof(Master));
  }
  [[nodiscard]] Index bytes() const { return arena_.bytes(); }
  /// The weights that are updated, laid out as the parameters are.
  [[nodiscard]] std::span<Master> masters()
    requires has_master
  {
    return part(0);
  }
  /// State number `which`, laid out as the parameters are.
  [[nodiscard]] std::span<Master> state(std::size_t which) { return part(which + (has_master ? 1 : 0)); }

  void update(const Optimizer& optimizer, std::span<Parameter> parameters, std::span<const Gradient> gradients,
              double learning_rate, double gradient_scale, Index step) {
    for (const Run& run : runs_) {
      const auto begin = static_cast<std::size_t>(run.range.begin);
      const auto size = static_cast<std::size_t>(run.range.size());
      std::array<std::span<Master>, states> state_spans;
      for (std::size_t s = 0; s < states; ++s) state_spans[s] = state(s).subspan(begin, size);
      const auto updated = [&] {
        if constexpr (has_master)
          return masters().subspan(begin, size);
        else
          return parameters.subspan(begin, size);
      }();
      optimizer.update(device_, updated, gradients.subspan(begin, size), state_spans, learning_rate, gradient_scale,
                       step, run.decay);
      if constexpr (has_master) ops::cast(device_, updated, parameters.subspan(begin, size));
    }
  }

 private:
  struct Run {
    Range range;
    bool decay = false;
  };

  [[nodiscard]] std::span<Master> part(std::size_t index) {
    return arena_.template elements<Master>(static_cast<Index>(index) * size_ * static_cast<Index>(sizeof(Master)),
                                            size_);
  }

  Device& device_;
  Index size_;
  typename Device::Arena arena_;
  std::vector<Run> runs_{};
};

}  // namespace dtrain::train
