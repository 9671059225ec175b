// One chunk of a rank with all that lends its units memory: parameters, gradients, and their exchange.
#pragma once

#include "dtrain/parallel/gradient_reduction.hpp"
#include "dtrain/parallel/parameter_gather.hpp"
#include "dtrain/parallel/stage.hpp"
#include "dtrain/parallel/stages.hpp"

namespace dtrain::parallel {

/// What the chunks of a rank share beside the workspace.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
struct RankExchange {
  RankExchange(Device& device, AxisCommunicators<S, C>& axes, Workspace<Lowered, Format, Device>& workspace)
      : shards(axes), scatter(device, workspace, shards) {}
  ShardCommunicators<S, C> shards;
  GradientScatter<Lowered, S, Format, Device, C> scatter;
};

/// Neither copied nor moved: its parts refer to each other.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class Chunk {
  using StageType = Stage<Lowered, Format, Device, S::Pipeline::virtual_stages == 1>;
  using Exchange = RankExchange<Lowered, S, Format, Device, C>;

 public:
  /// Collective over the ranks that share parameters.
  Chunk(Device& device, AxisCommunicators<S, C>& axes, Workspace<Lowered, Format, Device>& workspace,
        Exchange& exchange, const RankPlan<Lowered, Format>& plan, std::size_t number, std::uint64_t seed)
      : stage_(device, workspace, plan, number, axes.mesh().template along<axes::Tensor>().rank, seed),
        gather_(stage_.store(), workspace, exchange.shards),
        reduction_(device, stage_.store(), axes, exchange.shards, exchange.scatter) {}
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  [[nodiscard]] StageType& stage() { return stage_; }
  [[nodiscard]] const StageType& stage() const { return stage_; }
  [[nodiscard]] auto& gather() { return gather_; }
  [[nodiscard]] auto& reduction() { return reduction_; }

  /// Lets so many passes add gradients, which are reduced in the last of them; `first`: from zero.
  void restart(int passes, bool first) {
    passes_left_ = passes;
    if (first) reduction_.restart();
  }

  // As the parameter access of its stage.
  void begin(Pass pass) {
    pass_ = pass;
    gather_.begin(pass);
    if (adds_gradients()) reduction_.begin(pass, --passes_left_ == 0);
  }
  template <class Memory>
  void enter(Index unit, Memory& memory) {
    gather_.enter(unit, memory);
    if (adds_gradients()) reduction_.enter(unit, memory);
  }
  void leave(Index unit) {
    if (adds_gradients()) reduction_.leave(unit);
  }

 private:
  // Where the schedule splits the backward pass, its first half only defers.
  [[nodiscard]] bool adds_gradients() const {
    return pass_ == (Lowered::unit_options.splits_backward ? Pass::backward_weights : Pass::backward);
  }

  StageType stage_;
  ParameterGather<Lowered, S, Format, Device, C> gather_;
  GradientReduction<Lowered, S, Format, Device, C> reduction_;
  Pass pass_ = Pass::forward;
  int passes_left_ = 0;
};

}  // namespace dtrain::parallel
