// Llama with a tied head and one key/value head for two or four tensor ranks equals Llama on one rank.
#include "grid.hpp"

using namespace dtrain::test;
namespace dt = dtrain;

// fault C10, fault C11, fault C12, fault C20
TEST_CASE("one key/value head on several ranks, the head tied over stages") {
  Grid<GridOneKeyLlama, 5> grid;
  grid.check<dt::Strategy<dt::TensorParallel<4>>>({1, 3});
  grid.check<dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2>, dt::TensorParallel<4>>>({2});
}
