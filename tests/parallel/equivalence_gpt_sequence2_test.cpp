// Gpt under sequence parallelism on two ranks, alone and with the other axes, equals Gpt on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("sequence parallelism on two ranks") {
  Grid<GridGpt> grid;
  check_tensor<dtrain::TensorParallel<2, dtrain::SequenceParallel>>(grid);
}
