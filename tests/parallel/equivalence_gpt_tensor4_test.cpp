// Gpt under tensor parallelism on four ranks, alone and with the other axes, equals Gpt on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("tensor parallelism on four ranks") {
  Grid<GridGpt> grid;
  check_tensor<dtrain::TensorParallel<4>>(grid);
}
