// Llama under tensor parallelism on four ranks, alone and with the other axes, equals Llama on one rank.
#include "grid.hpp"

using namespace dtrain::test;

// fault C11: two key/value heads on four ranks
TEST_CASE("tensor parallelism on four ranks") {
  Grid<GridLlama> grid;
  check_tensor<dtrain::TensorParallel<4>>(grid);
}
