// Llama under tensor parallelism on two ranks, alone and with the other axes, equals Llama on one rank.
#include "grid.hpp"

using namespace dtrain::test;

// fault C12: a vocabulary of seven on two ranks
TEST_CASE("tensor parallelism on two ranks") {
  Grid<GridLlama> grid;
  check_tensor<dtrain::TensorParallel<2>>(grid);
}
