// Gpt without a tensor axis: micro-batches, data parallelism, ZeRO, recomputation.
#include "grid.hpp"

namespace dtrain::test {

void run_gpt_data(Report& report) {
  Grid<GridGpt> grid(report, "GPT");
  check_data(grid);

  // fault A8: every level and every number of micro-batches; fault D1: parts that three ranks share out unevenly.
  grid.check_cuts<Strategy<Sharded<1>>>({{1, 2}, {2, 1}, {2, 2}, {2, 4}, {3, 1}, {3, 4}});
  grid.check_cuts<Strategy<Sharded<2>>>({{1, 2}, {2, 1}, {2, 2}, {2, 4}, {3, 1}, {3, 4}});
  grid.check_cuts<Strategy<Sharded<3>>>({{1, 2}, {2, 1}, {2, 2}, {2, 4}, {3, 1}, {3, 4}, {5, 2}});
  grid.check<Strategy<DataParallel<2, Zero<3>>>>({3});
  grid.check_cuts<Strategy<Sharded<3, Prefetch<0>>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3, Prefetch<2>>>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<2, ShardWithin<2>>>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>>>>({{2, 2}, {4, 1}, {4, 3}, {6, 1}});

  grid.check_cuts<Strategy<Data, FullRecompute>>({{1, 1}, {1, 4}, {2, 2}});
  grid.check_cuts<Strategy<Sharded<1>, FullRecompute>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<2, ShardWithin<2>>, EverySecond>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>>, FullRecompute>>({{4, 2}});
  grid.check_cuts<Strategy<Data, Recompute<recompute::Attention>>>({{1, 3}, {2, 2}});
  grid.check_cuts<Strategy<Data, Selective>>({{1, 2}});
  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>, Selective>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<3>, Recompute<recompute::Attention>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2>, Selective>>({{2, 3}});

  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>, FullRecompute, ChunkedLoss<5>>>({{4, 1}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2>, ChunkedLoss<5>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, ChunkedLoss<5>>>({{2, 2}});
}

}  // namespace dtrain::test
