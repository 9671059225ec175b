// Llama under tensor and under sequence parallelism on two ranks.
#include "grid.hpp"

namespace dtrain::test {

// fault C12: a vocabulary of seven on two ranks
void run_llama_tensor(Report& report) {
  using Tensor = TensorParallel<2>;
  using Sequence = TensorParallel<2, SequenceParallel>;
  Grid<GridLlama> grid(report, "Llama");
  check_tensor<Tensor>(grid);
  grid.check_cuts<Strategy<Sharded<3>, Tensor, FullRecompute>>({{3, 2}});
  check_tensor<Sequence>(grid);
  grid.check_cuts<Strategy<Sharded<3>, PipelineParallel<2, OneForwardOneBackward>, Sequence>>({{2, 3}});
}

}  // namespace dtrain::test
