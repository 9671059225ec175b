// The numbers of a lowered program: what each rank holds, computes and exchanges in one training step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrain/parallel/memory.hpp"
#include "dtrain/parallel/schedule.hpp"
#include "dtrain/parallel/unit_rules.hpp"

namespace dtrain::parallel {

/// What neither the model nor the strategy knows.
using ExplainOptions = MemoryOptions;

/// One direction of a redistribution, per micro-batch: its collective ("slice" where each rank takes its own part, ""
/// where nothing happens) and the bytes of the call.
struct Transfer {
  std::string_view collective{};
  Index bytes = 0;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// A redistribution in both passes.
struct TransferPair {
  Transfer forward{};
  Transfer backward{};
  friend bool operator==(const TransferPair&, const TransferPair&) = default;
};

/// One node of a unit, as a tensor rank runs it.
struct NodeReport {
  std::string path;  ///< within the unit
  std::string type;  ///< of the layer; "" where only the layout changes
  NodeRule rule;
  TransferPair before;
  TransferPair after;
  Index parameters = 0;        ///< elements on one rank; a tied parameter counts where its storage is
  Index whole_parameters = 0;  ///< elements of all ranks together
  bool tied = false;           ///< uses another layer's parameter
};

/// One element of the model's sequence: `count` units of the same nodes.
struct UnitReport {
  std::string name;
  int first_unit = 0;
  int count = 1;
  bool repeated = false;
  std::vector<NodeReport> nodes{};
  Index parameters = 0;        ///< elements of a unit's region on one rank, with alignment
  Index whole_parameters = 0;  ///< of a unit
  Index activations = 0;       ///< bytes that a unit keeps per micro-batch in flight
  Index loss_chunks = 0;  ///< in so many parts of a micro-batch's rows the unit runs with the loss; 0: apart from it
  double flops_per_row = 0.0;  ///< forward pass of a unit, all tensor ranks together
};

/// Calls of one rank in one step. Bytes are those of the calls, whatever the algorithm beneath them.
struct Communication {
  std::string axis;
  std::string collective;
  std::string purpose;
  Index calls = 0;
  Index bytes = 0;
  friend bool operator==(const Communication&, const Communication&) = default;
};

/// One pipeline stage, as each of its ranks runs it; where ranks hold shards of unequal size, the one that holds most.
struct StageReport {
  std::vector<Range> units{};  ///< of each chunk
  std::vector<ChunkMemory> chunks{};
  std::vector<Index> recomputed{};  ///< units of each chunk whose forward pass the backward pass runs again
  Index parameters = 0;             ///< elements of the stage's region, all shards together
  Index smallest_shard = 0;         ///< of these, what the rank updates that updates least, and most
  Index largest_shard = 0;
  MemoryPlan memory{};
  Index optimizer = 0;  ///< bytes of the optimizer's states
  double flops = 0.0;   ///< per step, all ranks of the stage together
  std::vector<Communication> communications{};

  [[nodiscard]] Index total_bytes() const { return memory.total() + optimizer; }
};

/// The ranks along one axis.
struct AxisReport {
  std::string name;
  int size = 1;
};

/// A program in numbers; `explain` turns it into text.
struct Explanation {
  std::string strategy;
  int ranks = 1;
  int shares = 1;                  ///< of the batch
  std::vector<AxisReport> axes{};  ///< in the order in which ranks are numbered
  ShardingRule sharding{};
  int shard_ranks = 1;  ///< that share out what `sharding` says
  BatchShape batch{};
  std::string scalar;
  int optimizer_states = 0;
  Index whole_parameters = 0;
  std::vector<UnitReport> units{};
  std::vector<StageReport> stages{};
  Index all_ranks_bytes = 0;  ///< memory of all ranks together
  std::string schedule;
  std::string timeline;
  std::vector<schedule::Table> tables{};  ///< of every stage
  double bubble = 0.0;                    ///< idle share of a stage's time, when stages cost the same

  /// FLOPs of a step: forward, a backward pass of two forward passes, and one more of each unit that is recomputed.
  [[nodiscard]] double flops() const {
    double sum = 0.0;
    for (const StageReport& stage : stages) sum += stage.flops;
    return sum;
  }
  /// The rule of thumb: 6 x parameters x tokens (J. Kaplan et al., "Scaling laws for neural language models", 2020,
  /// section 2.1, here with all parameters).
  [[nodiscard]] double rule_of_thumb_flops() const {
    return 6.0 * static_cast<double>(whole_parameters) * static_cast<double>(batch.local_rows(1));
  }
};

}  // namespace dtrain::parallel
