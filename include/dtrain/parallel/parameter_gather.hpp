// Lends units their parameters: from where they are kept, or, under ZeRO 3, gathered just ahead of use.
#pragma once

#include <vector>

#include "dtrain/parallel/shard_communicators.hpp"
#include "dtrain/parallel/stage.hpp"

namespace dtrain::parallel {

/// Units are entered in the order of a pass. Under ZeRO 3 the gathers of the next units are posted while one runs; a
/// buffer is used again when its unit has run, so that whole parameters of `prefetch` + 1 units exist at once.
template <class Lowered, class S, NumberFormat Format, class Device, class C>
class ParameterGather {
  using Store = ParameterStore<Lowered, Format, Device>;
  using Shared = Workspace<Lowered, Format, Device>;
  using T = typename PrecisionOf<Format>::Parameter;
  using Communicators = ShardCommunicators<S, C>;
  static constexpr ShardingRule rule = S::sharding;

 public:
  ParameterGather(Store& store, Shared& workspace, Communicators& communicators)
      : store_(store), workspace_(workspace), communicators_(communicators) {
    if constexpr (rule.shards_parameters()) pending_.resize(static_cast<std::size_t>(buffers));
  }

  /// `units` will be entered, each once, in the order of the pass.
  void begin(Pass pass, Range units) {
    reverse_ = pass != Pass::forward;
    units_ = units;
    entered_ = posted_ = 0;
  }
  template <class Memory>
  void enter(Index unit, Memory& memory) {
    if constexpr (rule.shards_parameters()) {
      while (posted_ < units_.size() && posted_ <= entered_ + rule.prefetch) post(posted_++);
      Pending& arrived = pending_[static_cast<std::size_t>(entered_ % buffers)];
      for (auto& handle : arrived.handles) handle.wait();
      arrived.handles.clear();
      const T* buffer = workspace_.gather_buffer(entered_ % buffers).data();
      memory.parameters = buffer;
      if (tie_of(unit) != nullptr) memory.tied_parameter = buffer + store_.plan().region_of(unit).size();
      ++entered_;
    } else {
      const T* region = store_.parameters().data();
      memory.parameters = region + store_.plan().region_of(unit).begin;
      if (const Tie* tie = tie_of(unit)) memory.tied_parameter = region + store_.plan().tied_range(*tie).begin;
    }
  }

  /// Under ZeRO 1 and 2: whole parameters on all ranks again, after each has updated its shard.
  void publish() {
    if constexpr (rule.shards_optimizer() && !rule.shards_parameters()) {
      using Handle = typename std::remove_cvref_t<decltype(communicators_.shard())>::Handle;
      std::vector<Handle> handles;
      handles.reserve(store_.sharding().groups().size());
      for (const ShardGroup& group : store_.sharding().groups())
        handles.push_back(
            communicators_.shard().all_gather(std::span<const T>(store_.parameter_shard(group)),
                                              store_.parameters().subspan(static_cast<std::size_t>(group.whole.begin),
                                                                          static_cast<std::size_t>(group.whole.size())),
                                              std::span<const Index>(group.counts)));
      for (Handle& handle : handles) handle.wait();
    }
  }

  /// The tie by which a unit reads another's parameter, if any.
  [[nodiscard]] static const Tie* tie_of(Index unit) {
    const int element = Lowered::element_of(static_cast<int>(unit));
    for (const Tie& tie : Lowered::ties)
      if (tie.user == element) return &tie;
    return nullptr;
  }

 private:
  static constexpr Index buffers = Index{rule.prefetch} + 1;
  struct Pending {
    std::vector<typename PolicyCommunicator<typename S::Data, C>::Handle> handles;
  };

  // Gathers the unit that comes `order`-th in this pass.
  void post(Index order) {
    const auto& plan = store_.plan();
    const Index unit = reverse_ ? units_.end - 1 - order : units_.begin + order;
    auto buffer = workspace_.gather_buffer(order % buffers);
    auto& handles = pending_[static_cast<std::size_t>(order % buffers)].handles;
    gather(plan.region_of(unit), buffer, handles);
    if (const Tie* tie = tie_of(unit))
      gather(plan.tied_range(*tie), buffer.subspan(static_cast<std::size_t>(plan.region_of(unit).size())), handles);
  }
  template <class Handles>
  void gather(Range part, std::span<T> buffer, Handles& handles) {
    const Range groups = store_.sharding().groups_of(part);
    for (Index g = groups.begin; g < groups.end; ++g) {
      const ShardGroup& group = store_.sharding().group(g);
      handles.push_back(
          communicators_.shard().all_gather(std::span<const T>(store_.parameter_shard(group)),
                                            buffer.subspan(static_cast<std::size_t>(group.whole.begin - part.begin),
                                                           static_cast<std::size_t>(group.whole.size())),
                                            std::span<const Index>(group.counts)));
    }
  }

  Store& store_;
  Shared& workspace_;
  Communicators& communicators_;
  std::vector<Pending> pending_{};
  bool reverse_ = false;
  Range units_{};
  Index entered_ = 0;
  Index posted_ = 0;
};

}  // namespace dtrain::parallel
