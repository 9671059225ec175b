// What the body of a launch is given: this rank's device and its communicators along the axes of the strategy.
#pragma once

#include <string>

#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/parallel/mesh.hpp"

namespace dtrain::train {

namespace detail {
// The communicator that connects ranks of a device.
template <class Device>
struct CommunicatorOf;
template <>
struct CommunicatorOf<Host> {
  using type = comm::Threads;
};
}  // namespace detail

/// One rank of a launched strategy. It lives as long as the body runs, on the body's own thread.
template <class S, class D>
class Rank {
 public:
  using Strategy = S;
  using Device = D;
  using Communicator = typename detail::CommunicatorOf<D>::type;
  using Axes = parallel::AxisCommunicators<S, Communicator>;

  /// Collective over the world.
  Rank(D& device, Communicator& world) : device_(device), axes_(world) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// This rank's number in the world, and how many there are.
  [[nodiscard]] int index() const { return axes_.mesh().world_rank(); }
  [[nodiscard]] int count() const { return axes_.mesh().ranks(); }
  /// True on rank 0, which speaks for all.
  [[nodiscard]] bool is_first() const { return index() == 0; }
  /// "tensor 0 of 2, data 1 of 2".
  [[nodiscard]] std::string place() const { return axes_.mesh().describe(); }

  [[nodiscard]] D& device() { return device_; }
  [[nodiscard]] Axes& axes() { return axes_; }
  [[nodiscard]] Communicator& world() { return axes_.world(); }

 private:
  D& device_;
  Axes axes_;
};

}  // namespace dtrain::train

namespace dtrain {
using train::Rank;
}  // namespace dtrain
