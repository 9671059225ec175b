// Gpt and Llama under tensor and sequence parallelism on four ranks: more of them than key/value heads, and than rows.
#include "grid.hpp"

namespace dtrain::test {

// fault C10, fault C11, fault C12, fault C20: one or two key/value heads on four ranks; a head tied over stages
void run_four_tensor_ranks(Report& report) {
  using Tensor = TensorParallel<4>;
  using Sequence = TensorParallel<4, SequenceParallel>;
  {
    Grid<GridGpt> grid(report, "GPT");
    check_tensor<Tensor>(grid);
    check_tensor<Sequence>(grid);
    grid.check_cuts<Strategy<Sharded<3>, Sequence>>({{2, 2}});
  }
  {
    Grid<GridLlama> grid(report, "Llama");
    check_tensor<Tensor>(grid);
    check_tensor<Sequence>(grid);
    grid.check_cuts<Strategy<Sharded<2>, Tensor>>({{2, 2}});
  }
  Grid<GridOneKeyGpt> gpt(report, "GPT with one key/value head", 5);
  gpt.check<Strategy<Sequence>>({1, 3});
  gpt.check_cuts<Strategy<Data, PipelineParallel<2>, Sequence>>({{2, 2}});
  // Micro-batches of three rows on four ranks: one has none.
  Grid<GridOneKeyGpt> short_gpt(report, "GPT with one key/value head, a context of 3", 3);
  short_gpt.check_cuts<Strategy<Data, Sequence>>({{3, 8}});
  Grid<GridOneKeyLlama> llama(report, "Llama with one key/value head, tied", 5);
  llama.check<Strategy<Tensor>>({1, 3});
  llama.check_cuts<Strategy<Data, PipelineParallel<2>, Tensor>>({{2, 2}});
}

}  // namespace dtrain::test
