// Gpt under sequence parallelism on two ranks, alone and with every other part.
#include "grid.hpp"

namespace dtrain::test {

void run_gpt_sequence(Report& report) {
  using Two = TensorParallel<2, SequenceParallel>;
  Grid<GridGpt> grid(report, "GPT");
  check_tensor<Two>(grid);
  grid.check_cuts<Strategy<Sharded<1>, Two, EverySecond>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<2>, Two>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<3>, Two>>({{2, 1}, {3, 4}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>, Prefetch<0>>, Two>>({{4, 1}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, OneForwardOneBackward>, Two, FullRecompute>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>, Two, FullRecompute>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, Interleaved1F1B, Chunks<2>>, Two, Selective>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>, Two, ChunkedLoss<6>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleH1>, Two>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<2, ZeroBubbleV>, Two>>({{2, 4}});
}

}  // namespace dtrain::test
