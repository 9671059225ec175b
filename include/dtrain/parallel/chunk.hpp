// One chunk of a rank with all that lends its units memory: parameters, gradients, and their exchange.
#pragma once

#include <span>

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
  using T = typename PrecisionOf<Format>::Parameter;
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

  // As the parameter access of its stage. Not inlined: a stage calls them for each of its elements.
  void begin(Pass pass, Range units) {
    pass_ = pass;
    gather_.begin(pass, units);
    reduction_.begin(pass, pass == gradient_pass && --passes_left_ == 0);
  }
  template <class Memory>
  [[gnu::noinline]] void enter(Index unit, Memory& memory) {
    gather_.enter(unit, memory);
    if (adds_gradients(unit)) reduction_.enter(unit, memory);
  }
  [[gnu::noinline]] void leave(Index unit) {
    if (adds_gradients(unit)) reduction_.leave(unit);
  }
  /// Where the schedule splits the backward pass: a unit that this half does not enter has added its gradients in the
  /// first one. Ranks that keep shards of gradients gave theirs away then.
  void complete(Index unit) {
    if constexpr (!S::sharding.shards_gradients()) reduction_.leave(unit);
  }

  /// One row of the logits of a micro-batch of `rows` rows that ran forward, in slot 0, alike on all tensor ranks.
  template <class TensorCommunicator>
  void gather_logits(Index rows, Index row, TensorCommunicator& communicator, std::span<T> result) {
    using Loss = CrossEntropy<Lowered, T>;
    using Split = LossUnit<Lowered, T>;
    const auto batch = stage_.micro_batch(0, 0, rows, false, 0);
    if constexpr (Split::apart) {
      const auto place = Split::find(rows, row);
      begin(Pass::forward, stage_.loss_unit());
      auto pass = stage_.enter_loss(batch, 0, 0, communicator, *this);
      const auto chunk = pass.forward(place.chunk);
      leave(stage_.loss_unit().begin);
      Loss::gather_row(chunk.batch, chunk.logits, place.row, communicator, result);
    } else {
      Loss::gather_row(batch, stage_.output(batch, 0), row, communicator, result);
    }
  }

 private:
  // Where the schedule splits the backward pass, its first half only defers, but for a unit that runs with the loss.
  static constexpr Pass gradient_pass = Lowered::unit_options.splits_backward ? Pass::backward_weights : Pass::backward;
  [[nodiscard]] bool adds_gradients(Index unit) const {
    if (Lowered::unit_options.loss_rows > 0 && unit + 1 == Lowered::units) return pass_ == Pass::backward;
    return pass_ == gradient_pass;
  }

  StageType stage_;
  ParameterGather<Lowered, S, Format, Device, C> gather_;
  GradientReduction<Lowered, S, Format, Device, C> reduction_;
  Pass pass_ = Pass::forward;
  int passes_left_ = 0;
};

}  // namespace dtrain::parallel
