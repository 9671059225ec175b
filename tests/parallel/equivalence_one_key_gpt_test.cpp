// GPT with one key/value head for four tensor ranks, and with fewer rows than ranks, equals GPT on one rank.
#include "grid.hpp"

using namespace dtrain::test;
namespace dt = dtrain;

using Sequence4 = dt::TensorParallel<4, dt::SequenceParallel>;

// fault C10, fault C11
TEST_CASE("one key/value head on four ranks") {
  Grid<GridOneKeyGpt, 5> grid;
  grid.check<dt::Strategy<Sequence4>>({1, 3});
  grid.check<dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2>, Sequence4>>({2});
}

TEST_CASE("micro-batches of three rows on four sequence-parallel ranks: one has none") {
  Grid<GridOneKeyGpt, 3> grid;
  grid.check<dt::Strategy<dt::DataParallel<3>, Sequence4>>({8});
}
