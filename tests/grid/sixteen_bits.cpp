// Gpt in bfloat16 and float16: within a bound of the run in float, whatever the strategy.
#include "grid.hpp"

namespace dtrain::test {

void run_sixteen_bits(Report& report) {
  // bfloat16 keeps 8 bits and float16 11, and some dozens of roundings lie between a weight and its gradient.
  Grid<GridGpt, bfloat16> grid(report, "GPT in bfloat16", 0.03);
  grid.check<Serial>({1, 3});
  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>, TensorParallel<2>>>({{4, 1}});
  grid.check_cuts<Strategy<Data, Selective>>({{1, 3}});
  grid.check_cuts<Strategy<Sharded<2>, FullRecompute>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<3>>>({{3, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>, EverySecond>>({{2, 3}});
  grid.check<Strategy<PipelineParallel<2, Interleaved1F1B, Chunks<2>>>>({3});
  grid.check<Strategy<PipelineParallel<2, ZeroBubbleH1>>>({3});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleV>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, GPipe>, TensorParallel<2, SequenceParallel>>>({{2, 2}});
  Grid<GridGpt, float16> half(report, "GPT in float16", 0.01);
  half.check_cuts<Strategy<Sharded<3>>>({{2, 2}});
}

}  // namespace dtrain::test
