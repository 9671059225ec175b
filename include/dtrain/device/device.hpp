// What a device must offer: memory that is counted, copies, and a point at which all work has ended.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "dtrain/core/scalar.hpp"

namespace dtrain {

/// Memory that a device owns for the caller: freed by the destructor, moved but never copied.
template <class A>
concept DeviceArena = std::movable<A> && !std::copyable<A> && requires(A& arena, const A& view) {
  { arena.data() } -> std::convertible_to<std::byte*>;
  { view.bytes() } -> std::same_as<Index>;
};

/// A place where tensors live and operations run. The mathematics of layers are free functions whose first argument
/// is the device; `allocate`, `copy` and `fill` are all that a planner of buffers needs.
template <class D>
concept Device = requires(D& device, const D& view, std::span<float> out, std::span<const float> in, Index bytes) {
  typename D::Arena;
  requires DeviceArena<typename D::Arena>;
  { device.allocate(bytes) } -> std::same_as<typename D::Arena>;
  { view.live_bytes() } -> std::same_as<Index>;
  { view.allocations() } -> std::same_as<Index>;
  device.copy(in, out);
  device.fill(out, 0.0f);
  device.synchronize();
};

}  // namespace dtrain
