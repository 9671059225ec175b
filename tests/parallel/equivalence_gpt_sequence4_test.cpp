// Gpt under sequence parallelism on four ranks, alone and with the other axes, equals Gpt on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("sequence parallelism on four ranks") {
  Grid<GridGpt> grid;
  check_tensor<dtrain::TensorParallel<4, dtrain::SequenceParallel>>(grid);
}
