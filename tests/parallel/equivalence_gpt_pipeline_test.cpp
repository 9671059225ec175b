// Gpt in pipeline stages equals Gpt on one rank, for fewer, as many and more micro-batches than stages.
#include "grid.hpp"

using namespace dtrain::test;

// fault A3, fault C8, fault C20, fault E1, fault E2, fault E8
TEST_CASE("pipeline parallel") {
  Grid<GridGpt> grid;
  check_pipelines(grid);
}
