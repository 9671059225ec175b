// Llama under sequence parallelism on two ranks, alone and with the other axes, equals Llama on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("sequence parallelism on two ranks") {
  Grid<GridLlama> grid;
  check_tensor<dtrain::TensorParallel<2, dtrain::SequenceParallel>>(grid);
}
