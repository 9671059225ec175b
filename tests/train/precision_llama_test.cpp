// A Llama in bfloat16, on one rank and under three kinds of parallelism at once, lies near the run in float.
#include "dtrain/models/llama.hpp"
#include "precision.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;
using testing::record_run;

using TinyLlama = models::Llama<models::LlamaShape{
    .vocab = 11, .context = 6, .width = 8, .heads = 2, .layers = 2, .hidden = 12, .dropout = 0.1}>;

TEST_CASE("gradients, norms and weights in bfloat16 are those in float, up to rounding") {
  const RunOptions options = two_steps();
  const RecordedRun wide = record_run<TinyLlama, Serial, float>(options);
  check_near(wide, record_run<TinyLlama, Serial, dtrain::bfloat16>(options), bfloat16_bound);
  check_near(wide, record_run<TinyLlama, ThreeAxes, dtrain::bfloat16>(options), bfloat16_bound);
}

TEST_CASE("a Llama learns in bfloat16") {
  check_learning<TinyLlama, Serial, dtrain::bfloat16>();
  check_learning<TinyLlama, ThreeAxes, dtrain::bfloat16>();
}

}  // namespace
