// Llama under data parallelism, and under data with pipeline parallelism, equals Llama on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("data parallel") {
  Grid<GridLlama> grid;
  check_data(grid);
}
