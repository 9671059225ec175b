// Runs the model's last unit and the loss on one chunk of a micro-batch's rows after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "dtrain/parallel/loss_unit.hpp"
#include "dtrain/parallel/site.hpp"

namespace dtrain::parallel {

/// One micro-batch of the unit, while its parameters are lent. Each chunk overwrites the values of the one before.
template <class Lowered, Scalar T, Scalar G, class Device, class Communicator>
class LossPass {
  using Split = LossUnit<Lowered, T>;
  using U = typename Lowered::template UnitOf<Split::element_index>;
  using Loss = CrossEntropy<Lowered, T>;

 public:
  using Rows = typename Loss::template Rows<Device, Communicator>;

  /// `memory` has the unit's whole input; `targets` are of all rows of `whole`; a chunk's values lie at `room`, planned
  /// for `row_capacity` rows and `shard_capacity` of the sequence shard.
  LossPass(const MicroBatch<Device>& whole, const UnitMemory<T, G>& memory, std::span<const std::int32_t> targets,
           std::byte* room, Index row_capacity, Index shard_capacity, Communicator& communicator)
      : whole_(whole),
        lent_(memory),
        targets_(targets),
        room_(room),
        communicator_(communicator),
        batch_(whole),
        memory_(memory) {
    batch_.row_capacity = row_capacity;
    batch_.shard_capacity = shard_capacity;
    batch_.tokens = {};
    memory_.output = room;
    memory_.saved = at(Split::places.saved);
    memory_.transient = at(Split::places.transient);
    memory_.exchange = at(Split::places.exchange);
    for (std::size_t slot = 0; slot < pool_.size(); ++slot)
      pool_[slot] = at(Split::places.gradients + static_cast<Index>(slot) * Split::element.gradient_slot);
    memory_.gradient_pool = pool_.data();
  }
  LossPass(const LossPass&) = delete;
  LossPass& operator=(const LossPass&) = delete;

  [[nodiscard]] Index chunks() const { return Split::chunks(whole_.rows); }

  /// The logits of a chunk, with the batch that it is.
  [[nodiscard]] Rows forward(Index chunk) {
    place(chunk);
    U::forward(batch_, memory_, communicator_);
    return {batch_, communicator_, U::output(batch_, memory_), chunk_targets(chunk), at(Split::places.statistics)};
  }
  /// The loss of a chunk. Its part of the gradient of the input, `scale` times that of the sum, is written to its rows
  /// of `input_gradient`.
  [[nodiscard]] LossSum train(Index chunk, double scale, Matrix<T> input_gradient) {
    const Rows rows = forward(chunk);
    const LossSum sum = rows.forward();
    rows.backward(scale);
    memory_.incoming_gradient = rows.logits.data();
    U::backward(batch_, memory_, communicator_);
    const Matrix<T> gradient = U::input_gradient(batch_, memory_);
    const auto first = static_cast<std::size_t>(first_local_ * U::entering_width);
    batch_.device->copy(std::span<const T>(gradient.flat()),
                        input_gradient.flat().subspan(first, static_cast<std::size_t>(gradient.size())));
    return sum;
  }

 private:
  [[nodiscard]] std::byte* at(Extent offset) const {
    return room_ + offset.bytes(batch_.row_capacity, batch_.shard_capacity);
  }
  // Makes `batch_` and `memory_` those of a chunk. Layers that share out its rows find the global index of their first
  // one in `first_row` and `shard` together.
  void place(Index chunk) {
    const int share = Split::share_of(whole_.tensor_rank);
    const Range own = Split::rows_of(whole_.rows, share, chunk);
    first_local_ = own.begin - even_share(whole_.rows, Split::shares, share).begin;
    batch_.rows = 0;
    for (int s = 0; s < Split::shares; ++s) batch_.rows += Split::rows_of(whole_.rows, s, chunk).size();
    batch_.shard = even_share(batch_.rows, Lowered::tensor.degree, whole_.tensor_rank);
    batch_.first_row = whole_.first_row + own.begin - (Split::splits_rows ? batch_.shard.begin : 0);
    memory_.input = lent_.input + first_local_ * U::entering_width;
  }
  // In the order of the gathered rows.
  [[nodiscard]] std::span<const std::int32_t> chunk_targets(Index chunk) const {
    const auto part = [&](Range rows) {
      return targets_.subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.size()));
    };
    if constexpr (!Split::splits_rows) {
      return part(Split::rows_of(whole_.rows, 0, chunk));
    } else {
      auto* const gathered = reinterpret_cast<std::int32_t*>(at(Split::places.targets));
      auto* end = gathered;
      for (int share = 0; share < Split::shares; ++share)
        end = std::ranges::copy(part(Split::rows_of(whole_.rows, share, chunk)), end).out;
      return {gathered, end};
    }
  }

  const MicroBatch<Device>& whole_;
  UnitMemory<T, G> lent_;
  std::span<const std::int32_t> targets_;
  std::byte* room_;
  Communicator& communicator_;
  MicroBatch<Device> batch_;
  UnitMemory<T, G> memory_;
  std::array<std::byte*, static_cast<std::size_t>(std::max(Split::element.gradient_slots, 1))> pool_{};
  Index first_local_ = 0;
};

}  // namespace dtrain::parallel
