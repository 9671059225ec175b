// Gpt without a tensor axis in pipelines whose backward passes are whole, with ZeRO and recomputation.
#include "grid.hpp"

namespace dtrain::test {

// fault A3, fault C8, fault C20, fault E1, fault E2, fault E8
void run_gpt_pipelines(Report& report) {
  Grid<GridGpt> grid(report, "GPT");
  check_pipelines(grid);
  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>, PipelineParallel<2, OneForwardOneBackward>>>({{2, 3}, {4, 1}});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<3, GPipe>, EverySecond>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, GPipe>>>({{2, 5}, {3, 1}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<3, OneForwardOneBackward>, FullRecompute>>({{2, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>>>({{2, 2}, {3, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<4, OneForwardOneBackward>, EverySecond>>({{2, 8}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>>, PipelineParallel<2, GPipe>, FullRecompute>>({{4, 3}});

  // Chunks in loops, also where the stages do not divide the micro-batches.
  grid.check<Strategy<PipelineParallel<2, Interleaved1F1B, Chunks<2>>>>({1, 2, 3, 4, 5, 8});
  grid.check<Strategy<PipelineParallel<3, Interleaved1F1B, Chunks<2>>>>({1, 3, 5, 8});
  grid.check<Strategy<PipelineParallel<2, Interleaved1F1B, Chunks<3>>>>({1, 2, 3, 4, 5});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>, FullRecompute>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<2, ShardWithin<2>>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, Interleaved1F1B, Chunks<3>>, EverySecond>>({{2, 3}});

  // fault E3: four stages and ten micro-batches are two rounds and a half.
  Grid<GridGptOf<8>> deep(report, "GPT of 8 blocks");
  deep.check<Strategy<PipelineParallel<4, Interleaved1F1B, Chunks<2>>>>({3, 10});
  // Stages without a block of their own.
  Grid<GridGptOf<1>> shallow(report, "GPT of 1 block");
  shallow.check<Strategy<PipelineParallel<4, OneForwardOneBackward>>>({3});
  shallow.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>>>({{2, 3}});
}

}  // namespace dtrain::test
