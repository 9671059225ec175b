// Gpt without a tensor axis under schedules that part the backward pass, with ZeRO.
#include "grid.hpp"

namespace dtrain::test {

// fault C20: under a V a tied head lies with its embedding on the first stage.
void run_gpt_split_backward(Report& report) {
  Grid<GridGpt> grid(report, "GPT");
  grid.check<Strategy<PipelineParallel<2, ZeroBubbleH1>>>({1, 2, 3, 5});
  grid.check<Strategy<PipelineParallel<3, ZeroBubbleH1>>>({1, 3, 5, 8});
  grid.check<Strategy<PipelineParallel<4, ZeroBubbleH1>>>({2, 8});
  grid.check<Strategy<PipelineParallel<2, ZeroBubbleV>>>({1, 2, 3, 4, 5, 8});
  grid.check<Strategy<PipelineParallel<3, ZeroBubbleV>>>({2, 5, 8});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleV>, ChunkedLoss<5>>>({{2, 3}});
  grid.check_cuts<Strategy<Data, PipelineParallel<2, ZeroBubbleV>>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<1>, PipelineParallel<2, ZeroBubbleH1>>>({{2, 3}});
  grid.check_cuts<Strategy<Sharded<1, ShardWithin<2>>, PipelineParallel<2, ZeroBubbleV>>>({{4, 3}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleH1>>>({{3, 2}});
  grid.check_cuts<Strategy<Sharded<2>, PipelineParallel<2, ZeroBubbleV>>>({{2, 2}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<3, ZeroBubbleH1>>>({{2, 4}});
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, ZeroBubbleV>>>({{3, 3}});
  grid.check_cuts<Strategy<Sharded<3, ShardWithin<2>>, PipelineParallel<2, ZeroBubbleH1>>>({{4, 2}});
}

}  // namespace dtrain::test
