// Plans the buffers of a unit from what its nodes read and write in both passes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "dtrain/parallel/buffer_plan.hpp"

namespace dtrain::parallel {

namespace detail {

// Counts here are signed, places in an array are not.
constexpr std::size_t index(int count) { return static_cast<std::size_t>(count); }

// One value of the forward pass while the plan is made.
struct Buffer {
  Extent extent;
  bool external = false;
  bool saved = false;
  bool output = false;  // of the unit
  int first = 0;
  int last = 0;
  Extent offset{};
};

template <int Count>
struct ForwardPlanner {
  const std::array<NodeTraits, Count>& traits;
  std::array<Buffer, 3 * Count + 1> buffers{};
  int used = 0;
  std::array<int, Count + 1> branches{};
  int depth = 0;
  // Buffer of each node's entering, in, out, leaving and branch.
  std::array<std::array<int, 5>, Count> ids{};

  constexpr int allocate(Extent extent, int time) {
    // In two steps, because nvcc forgets the names of members in a list that is assigned to an element.
    const Buffer buffer{.extent = extent, .first = time, .last = time};
    buffers[index(used)] = buffer;
    return used++;
  }
  constexpr bool is_branch(int id) const {
    for (int d = 0; d < depth; ++d)
      if (branches[index(d)] == id) return true;
    return false;
  }
  constexpr bool may_overwrite(int id) const {
    return !buffers[index(id)].external && !buffers[index(id)].saved && !is_branch(id);
  }
  constexpr void touch(int id, int time) { buffers[index(id)].last = std::max(buffers[index(id)].last, time); }

  constexpr int layer(int i, int value) {
    const NodeTraits& node = traits[index(i)];
    int in = value;
    if (moves_forward(node.before)) in = allocate(node.in, i);
    touch(value, i);
    touch(in, i);
    if (node.saves_input) buffers[index(in)].saved = true;
    const bool over = node.kind == NodeTraits::Kind::pass || (node.in_place && !node.saves_input && may_overwrite(in));
    const int out = over ? in : allocate(node.out, i);
    if (node.saves_output) buffers[index(out)].saved = true;
    const int leaving = node.after == Redistribution::scatter_sequence ? allocate(node.leaving, i) : out;
    touch(out, i);
    ids[index(i)] = {value, in, out, leaving, -1};
    return leaving;
  }
  constexpr int join(int i, int value) {
    const int branch = branches[index(--depth)];
    touch(value, i);
    touch(branch, i);
    const int out = may_overwrite(value) && value != branch ? value : allocate(traits[index(i)].out, i);
    ids[index(i)] = {value, value, out, out, branch};
    return out;
  }
  constexpr void run() {
    int value = allocate(traits[0].entering, 0);
    buffers[index(value)].external = true;
    for (int i = 0; i < Count; ++i) {
      if (traits[index(i)].kind == NodeTraits::Kind::fork) {
        branches[index(depth++)] = value;
        ids[index(i)] = {value, value, value, value, -1};
      } else {
        value = traits[index(i)].kind == NodeTraits::Kind::join ? join(i, value) : layer(i, value);
      }
    }
  }
  // Redistributions whose forward pass gives a value of its own.
  static constexpr bool moves_forward(Redistribution move) {
    return move == Redistribution::gather_sequence || move == Redistribution::gather_features ||
           move == Redistribution::slice_features;
  }
};

template <int Count>
constexpr void place_saved(ForwardPlanner<Count>& planner, BufferPlan<Count>& plan) {
  for (int b = 0; b < planner.used; ++b) {
    Buffer& buffer = planner.buffers[index(b)];
    if (buffer.external || buffer.output || !buffer.saved) continue;
    buffer.offset = plan.saved;
    plan.saved += buffer.extent;
  }
}

// Values that live at the same time get different slots of the transient region.
template <int Count>
constexpr void place_transient(ForwardPlanner<Count>& planner, BufferPlan<Count>& plan) {
  std::array<Extent, 3 * Count + 1> slot_extent{};
  std::array<int, 3 * Count + 1> slot_free_after{};
  std::array<int, 3 * Count + 1> slot_of{};
  int slots = 0;
  for (int b = 0; b < planner.used; ++b) {
    const Buffer& buffer = planner.buffers[index(b)];
    if (buffer.external || buffer.output || buffer.saved) continue;
    int slot = 0;
    while (slot < slots && slot_free_after[index(slot)] >= buffer.first) ++slot;
    if (slot == slots) ++slots;
    slot_extent[index(slot)] = larger(slot_extent[index(slot)], buffer.extent);
    slot_free_after[index(slot)] = buffer.last;
    slot_of[index(b)] = slot;
  }
  std::array<Extent, 3 * Count + 1> slot_offset{};
  for (int s = 0; s < slots; ++s) {
    slot_offset[index(s)] = plan.transient;
    plan.transient += slot_extent[index(s)];
  }
  for (int b = 0; b < planner.used; ++b) {
    Buffer& buffer = planner.buffers[index(b)];
    if (!buffer.external && !buffer.output && !buffer.saved) buffer.offset = slot_offset[index(slot_of[index(b)])];
  }
}

// Outputs of layers that `recomputes` are not kept where what they are computed from is. They lie where the forward
// pass has them: a value lives from its layer to its last reader in both passes, so that lifetimes overlap in the
// backward pass exactly where they did in the forward pass.
template <int Count>
constexpr void plan_recomputation(ForwardPlanner<Count>& planner, BufferPlan<Count>& plan) {
  for (int i = 0; i < Count; ++i) {
    const NodeTraits& node = planner.traits[index(i)];
    const auto& ids = planner.ids[index(i)];
    if (!node.recomputes || node.before != Redistribution::none || node.after != Redistribution::none) continue;
    const Buffer& in = planner.buffers[index(ids[1])];
    Buffer& out = planner.buffers[index(ids[2])];
    if (ids[1] == ids[2] || !out.saved || out.output || !(in.saved || in.external)) continue;
    constexpr int nobody = -1;
    int reader = node.saves_output ? i : nobody;
    bool read_elsewhere = false;  // behind a redistribution in place, say
    for (int j = i + 1; j < Count; ++j) {
      if (planner.ids[index(j)][1] == ids[2] && planner.traits[index(j)].saves_input) reader = j;
      if (planner.ids[index(j)][2] == ids[2]) read_elsewhere = true;
    }
    if (reader == nobody || read_elsewhere) continue;
    out.saved = false;
    if (reader == i) {
      plan.nodes[index(i)].recomputes_own = true;
    } else {
      plan.nodes[index(reader)].recomputes_input = true;
      plan.nodes[index(reader)].producer = i;
    }
  }
}

template <int Count>
struct BackwardPlanner {
  const std::array<NodeTraits, Count>& traits;
  BufferPlan<Count>& plan;
  std::array<bool, Count + 3> busy{};
  std::array<int, Count + 1> held{};
  int depth = 0;

  constexpr int allocate(Extent extent) {
    int slot = 0;
    while (busy[index(slot)]) ++slot;
    busy[index(slot)] = true;
    plan.gradient_slots = std::max(plan.gradient_slots, slot + 1);
    plan.gradient_slot = larger(plan.gradient_slot, extent);
    return slot;
  }
  constexpr bool is_held(int id) const {
    for (int d = 0; d < depth; ++d)
      if (held[index(d)] == id) return true;
    return false;
  }
  constexpr void release(int id) {
    if (id >= 0 && !is_held(id)) busy[index(id)] = false;
  }
  // The gradient on the other side of a redistribution: `moves` says whether it needs memory of its own.
  constexpr int across(int id, bool moves, Extent extent) {
    if (!moves) return id;
    const int moved = allocate(extent);
    release(id);
    return moved;
  }
  constexpr int layer(int i, int gradient) {
    const NodeTraits& node = traits[index(i)];
    NodePlan& place = plan.nodes[index(i)];
    place.gradient_leaving = gradient;
    gradient = across(gradient, node.after == Redistribution::scatter_sequence, node.out);
    place.gradient_out = gradient;
    if (node.takes_tokens) {
      release(gradient);
      return no_gradient;
    }
    // An all-reduce in place would also change a gradient that is held for a branch.
    const bool must_own = node.before == Redistribution::reduce_gradient && is_held(gradient);
    const bool identity = node.identity_gradient || node.kind == NodeTraits::Kind::pass;
    const bool stays = (identity && !must_own) || (node.in_place && !is_held(gradient));
    if (!stays) gradient = across(gradient, true, node.in);
    place.gradient_in = gradient;
    gradient = across(gradient, moves_backward(node.before), node.entering);
    place.gradient_entering = gradient;
    return gradient;
  }
  constexpr int fork(int i, int gradient) {
    NodePlan& place = plan.nodes[index(i)];
    const int branch = held[index(--depth)];
    place.gradient_branch = branch;
    place.gradient_leaving = gradient;
    int sum = gradient;
    if (gradient == branch && is_held(gradient)) {
      sum = allocate(traits[index(i)].entering);
    } else if (is_held(gradient)) {
      sum = is_held(branch) ? allocate(traits[index(i)].entering) : branch;
    } else if (gradient != branch) {
      release(branch);
    }
    place.gradient_entering = sum;
    return sum;
  }
  constexpr void run() {
    int gradient = incoming_gradient;
    for (int i = Count - 1; i >= 0; --i) {
      if (traits[index(i)].kind == NodeTraits::Kind::join) {
        plan.nodes[index(i)].gradient_leaving = gradient;
        plan.nodes[index(i)].gradient_entering = gradient;
        held[index(depth++)] = gradient;
      } else {
        gradient = traits[index(i)].kind == NodeTraits::Kind::fork ? fork(i, gradient) : layer(i, gradient);
      }
    }
    plan.outgoing_gradient = gradient;
  }
  static constexpr bool moves_backward(Redistribution move) {
    return move == Redistribution::gather_sequence || move == Redistribution::gather_features ||
           move == Redistribution::slice_features;
  }
};

}  // namespace detail

/// Plans a unit. Values that the backward pass reads lie in the saved region one after another, the unit's output on
/// its own; the others share the transient region. Layers that may work in place do so where nobody needs what they
/// overwrite. With `SplitsBackward`, gradients that the weights' backward pass reads later have places of their own.
template <int Count, bool SplitsBackward = false>
constexpr BufferPlan<Count> plan_buffers(const std::array<NodeTraits, Count>& traits) {
  BufferPlan<Count> plan;
  // Said again for each, since g++ 12 zeroes some of them when it evaluates the array a second time.
  for (NodePlan& node : plan.nodes) node = NodePlan{};
  detail::ForwardPlanner<Count> forward{traits};
  forward.run();
  const int output = forward.ids[detail::index(Count - 1)][3];
  plan.output_is_read_again =
      forward.buffers[detail::index(output)].saved || forward.buffers[detail::index(output)].external;
  forward.buffers[detail::index(output)].output = true;
  plan.output = forward.buffers[detail::index(output)].extent;
  plan_recomputation(forward, plan);
  place_saved(forward, plan);
  place_transient(forward, plan);

  const auto place = [&](int id) -> Place {
    if (id < 0) return {};
    const detail::Buffer& buffer = forward.buffers[detail::index(id)];
    if (buffer.external) return {Place::Where::input, {}};
    if (buffer.output) return {Place::Where::output, {}};
    return {buffer.saved ? Place::Where::saved : Place::Where::transient, buffer.offset};
  };
  for (int i = 0; i < Count; ++i) {
    const auto& ids = forward.ids[detail::index(i)];
    NodePlan& node = plan.nodes[detail::index(i)];
    node.entering = place(ids[0]);
    node.in = place(ids[1]);
    node.out = place(ids[2]);
    node.leaving = place(ids[3]);
    node.branch = place(ids[4]);
    node.statistics = plan.saved;
    plan.saved += traits[detail::index(i)].statistics;
    if (SplitsBackward && traits[detail::index(i)].has_parameters) {
      node.deferred_out = plan.deferred;
      plan.deferred += traits[detail::index(i)].out;
      node.deferred_leaving = node.deferred_out;
      if (traits[detail::index(i)].after == Redistribution::scatter_sequence) {
        node.deferred_leaving = plan.deferred;
        plan.deferred += traits[detail::index(i)].leaving;
      }
    }
    const std::array<Redistribution, 2> moves{traits[detail::index(i)].before, traits[detail::index(i)].after};
    for (const Redistribution move : moves)
      if (move == Redistribution::gather_features || move == Redistribution::slice_features)
        plan.exchange = larger(plan.exchange, larger(traits[detail::index(i)].entering, traits[detail::index(i)].in));
  }
  plan.leaving = place(output);
  detail::BackwardPlanner<Count>{traits, plan}.run();
  return plan;
}

}  // namespace dtrain::parallel
