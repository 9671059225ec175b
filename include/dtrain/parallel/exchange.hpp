// Carries out the redistributions of activations over the tensor axis.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "dtrain/ops/host/copy.hpp"
#include "dtrain/parallel/redistribution.hpp"
#include "dtrain/parallel/site.hpp"

namespace dtrain::parallel {

/// The moves of one micro-batch between the layouts of a tensor axis of `Degree` ranks. `room` holds one activation
/// of whole rows and features, for gathering features.
template <int Degree, Scalar T, class Device>
struct Exchange {
  const MicroBatch<Device>& batch;
  std::byte* room;

  /// The forward pass of a move.
  template <Redistribution Move, class Communicator>
  void forward(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    if constexpr (Move == Redistribution::all_reduce)
      communicator.all_reduce(from.flat()).wait();
    else if constexpr (Move == Redistribution::gather_sequence)
      gather_rows(communicator, from, to);
    else if constexpr (Move == Redistribution::scatter_sequence)
      reduce_rows(communicator, from, to);
    else if constexpr (Move == Redistribution::gather_features)
      gather_columns(communicator, from, to);
    else if constexpr (Move == Redistribution::slice_features)
      slice_columns(communicator, from, to);
  }

  /// Its backward pass: `from` is the gradient of what the forward pass gave, `to` that of what it took.
  template <Redistribution Move, class Communicator>
  void backward(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    if constexpr (Move == Redistribution::reduce_gradient)
      communicator.all_reduce(from.flat()).wait();
    else if constexpr (Move == Redistribution::gather_sequence)
      reduce_rows(communicator, from, to);
    else if constexpr (Move == Redistribution::scatter_sequence)
      gather_rows(communicator, from, to);
    else if constexpr (Move == Redistribution::gather_features)
      slice_columns(communicator, from, to);
    else if constexpr (Move == Redistribution::slice_features)
      gather_columns(communicator, from, to);
  }

 private:
  // Rows of each rank's sequence shard, in elements; the first ranks hold one row more where they do not divide.
  [[nodiscard]] std::array<Index, Degree> shard_counts(Index width) const {
    std::array<Index, Degree> counts{};
    for (int r = 0; r < Degree; ++r)
      counts[static_cast<std::size_t>(r)] = even_share(batch.rows, Degree, r).size() * width;
    return counts;
  }
  template <class Communicator>
  void gather_rows(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    const auto counts = shard_counts(to.columns());
    communicator.all_gather(std::span<const T>(from.flat()), to.flat(), std::span<const Index>(counts)).wait();
  }
  template <class Communicator>
  void reduce_rows(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    const auto counts = shard_counts(from.columns());
    communicator.reduce_scatter(std::span<const T>(from.flat()), to.flat(), std::span<const Index>(counts)).wait();
  }
  // All ranks' columns arrive one after the other and are then laid side by side.
  template <class Communicator>
  void gather_columns(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    T* const gathered = reinterpret_cast<T*>(room);
    communicator
        .all_gather(std::span<const T>(from.flat()),
                    std::span<T>(gathered, static_cast<std::size_t>(from.size() * Degree)))
        .wait();
    for (Index r = 0; r < Degree; ++r)
      ops::copy_matrix(*batch.device, Matrix<const T>(gathered + r * from.size(), from.rows(), from.columns()),
                       to.column_range({r * from.columns(), (r + 1) * from.columns()}));
  }
  template <class Communicator>
  void slice_columns(Communicator& communicator, Matrix<T> from, Matrix<T> to) const {
    const Index first = communicator.rank() * to.columns();
    ops::copy_matrix(*batch.device, Matrix<const T>(from.column_range({first, first + to.columns()})), to);
  }
};

}  // namespace dtrain::parallel
