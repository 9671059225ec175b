#include <doctest/doctest.h>

#include "dtrain/parallel/strategy.hpp"

namespace {

namespace dt = dtrain;

// [snippet strategies]
using Sharded = dt::Strategy<dt::DataParallel<4, dt::Zero<3>>>;
// Shards within pairs of neighbours, which a node may hold, and replicas across; two units are gathered ahead.
using Hybrid = dt::Strategy<dt::DataParallel<4, dt::Zero<3, dt::ShardWithin<2>, dt::Prefetch<2>>>>;
// Combined with everything else.
using Large = dt::Strategy<dt::DataParallel<2, dt::Zero<3>>, dt::PipelineParallel<2>,
                           dt::TensorParallel<2, dt::SequenceParallel>, dt::Recompute<dt::recompute::Full>>;
// [end snippet]

}  // namespace

TEST_CASE("strategies say what ranks share out and what is computed again") {
  CHECK(Sharded::sharding == dt::parallel::ShardingRule{.level = 3});
  CHECK(Hybrid::sharding == dt::parallel::ShardingRule{.level = 3, .within = 2, .prefetch = 2});
  CHECK(Hybrid::describe() == "DataParallel<4, Zero<3, ShardWithin<2>, Prefetch<2>>>");
  CHECK(Large::recomputation == dt::parallel::RecomputationRule{.every = 1});
  CHECK(Large::static_ranks == 8);
  // One rank has nothing to share out.
  CHECK(dt::Strategy<dt::DataParallel<1, dt::Zero<3>>>::sharding == dt::parallel::ShardingRule{});
  using Selective = dt::Strategy<dt::Recompute<dt::recompute::Attention, dt::recompute::NormsAndActivations>>;
  CHECK(Selective::recomputation ==
        dt::parallel::RecomputationRule{.attention = true, .norms = true, .activations = true});
  CHECK(Selective::describe() == "Recompute<Attention, NormsAndActivations>");
}
