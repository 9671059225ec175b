// Gpt under data parallelism, and under data with pipeline parallelism, equals Gpt on one rank.
#include "grid.hpp"

using namespace dtrain::test;

TEST_CASE("data parallel") {
  Grid<GridGpt> grid;
  check_data(grid);
}
