// Gpt under tensor parallelism on two ranks, alone and with every other part.
#include "grid.hpp"

namespace dtrain::test {

void run_gpt_tensor(Report& report) {
  using Two = TensorParallel<2>;
  Grid<GridGpt> grid(report, "GPT");
  check_tensor<Two>(grid);
  grid.check_cuts<Strategy<Sharded<1>, Two>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<2>, Two, FullRecompute>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<3>, Two>>({{2, 1}, {3, 4}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>>, Two>>({{4, 2}});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<2, OneForwardOneBackward>, Two, EverySecond>>({{2, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>, Two, FullRecompute>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>, Two>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, GPipe>, Two, Selective>>({{1, 2}, {2, 3}});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<2, ZeroBubbleH1>, Two>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, ZeroBubbleV>, Two>>({{2, 2}});
}

}  // namespace dtrain::test
