// Llama without a tensor axis: every axis, ZeRO, recomputation, every schedule.
#include "grid.hpp"

namespace dtrain::test {

// fault A3, fault E1, fault E2
void run_llama(Report& report) {
  Grid<GridLlama> grid(report, "Llama");
  check_data(grid);
  check_pipelines(grid);
  grid.check_cuts<Strategy<Sharded<1>>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<2>, FullRecompute>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>>>({{3, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>, EverySecond>>({{2, 3}});
  grid.check<Strategy<PipelineParallel<2, Interleaved1F1B, Chunks<2>>>>({3, 4});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleV>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<3>, Selective>>({{2, 2}});
}

}  // namespace dtrain::test
