// The optimizer of one rank: its state beside the parameters, and the update of all of them.
#pragma once

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
#include "dtrain/parallel/parameter_store.hpp"

namespace dtrain::train {

/// State for the parameters of one chunk that this rank updates, in the numbers of `Format`: a scalar or a `Precision`.
/// Where the parameters are narrower than what is updated, master weights lie in front of the optimizer's own state.
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

  /// State for what `store` says that this rank updates. `seed` is that of the parameters: master weights start from
  /// the numbers that the parameters were rounded from.
  template <class Store>
  [[gnu::cold]] OptimizerState(Device& device, const Store& store, std::uint64_t seed)
      : device_(device),
        size_(store.sharding().size()),
        arena_(device.allocate(bytes_for(size_), Contents::zero)),
        pieces_(store.update_pieces()) {
    if constexpr (has_master) store.start_of_parameters(seed, masters());
  }

  /// Bytes of the state of so many parameters, master weights included.
  [[nodiscard]] static constexpr Index bytes_for(Index parameters) {
    return (Optimizer::states + (has_master ? 1 : 0)) * parameters * static_cast<Index>(sizeof(Master));
  }
  [[nodiscard]] Index bytes() const { return arena_.bytes(); }
  /// The weights that are updated, laid out as the shards of the parameters are.
  [[nodiscard]] std::span<Master> masters()
    requires has_master
  {
    return part(0);
  }
  /// State number `which`, laid out likewise.
  [[nodiscard]] std::span<Master> state(std::size_t which) { return part(which + (has_master ? 1 : 0)); }

  /// Updates this rank's part of `parameters`, both as the store keeps them.
  void update(const Optimizer& optimizer, std::span<Parameter> parameters, std::span<const Gradient> gradients,
              double learning_rate, double gradient_scale, Index step) {
    for (const parallel::UpdatePiece& piece : pieces_) {
      const auto size = static_cast<std::size_t>(piece.size);
      const auto kept = parameters.subspan(static_cast<std::size_t>(piece.parameters), size);
      std::array<std::span<Master>, states> state_spans;
      for (std::size_t s = 0; s < states; ++s)
        state_spans[s] = state(s).subspan(static_cast<std::size_t>(piece.state), size);
      const auto updated = [&] {
        if constexpr (has_master)
          return masters().subspan(static_cast<std::size_t>(piece.state), size);
        else
          return kept;
      }();
      optimizer.update(device_, updated, gradients.subspan(static_cast<std::size_t>(piece.gradients), size),
                       state_spans, learning_rate, gradient_scale, step, piece.decay);
      if constexpr (has_master) ops::cast(device_, updated, kept);
    }
  }

 private:
  [[nodiscard]] std::span<Master> part(std::size_t index) {
    return arena_.template elements<Master>(static_cast<Index>(index) * size_ * static_cast<Index>(sizeof(Master)),
                                            size_);
  }

  Device& device_;
  Index size_;
  typename Device::Arena arena_;
  std::vector<parallel::UpdatePiece> pieces_;
};

}  // namespace dtrain::train
