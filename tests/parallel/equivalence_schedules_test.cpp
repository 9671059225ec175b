// Gpt under schedules with several chunks per stage and with parted backward passes equals Gpt on one rank.
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "grid.hpp"

using namespace dtrain;
using namespace dtrain::test;

// fault C20, fault E3: a tied head lies with its embedding on the first stage of a V; micro-batches need not divide.
TEST_CASE("chunks and parted backward passes") {
  Grid<GridGpt> grid;
  grid.check<Strategy<PipelineParallel<3, schedule::Interleaved1F1B, Chunks<2>>>>({1, 3, 5, 8});
  grid.check<Strategy<PipelineParallel<3, schedule::ZeroBubbleH1>>>({1, 3, 5, 8});
  grid.check<Strategy<PipelineParallel<2, schedule::ZeroBubbleV>>>({1, 2, 5, 8});
}
