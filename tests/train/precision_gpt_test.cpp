// A GPT in bfloat16 and in float16, under every kind of parallelism, lies within a stated bound of the run in float.
#include "precision.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::test;
using testing::record_run;

TEST_CASE("gradients, norms and weights in 16 bits are those in float, up to rounding") {
  const RunOptions options = two_steps();
  const RecordedRun wide = record_run<TinyGpt, Serial, float>(options);
  check_near(wide, record_run<TinyGpt, Serial, dtrain::bfloat16>(options), bfloat16_bound);
  check_near(wide, record_run<TinyGpt, Data2, dtrain::bfloat16>(options), bfloat16_bound);
  check_near(wide, record_run<TinyGpt, Tensor2, dtrain::bfloat16>(options), bfloat16_bound);
  check_near(wide, record_run<TinyGpt, Pipeline2, dtrain::bfloat16>(options), bfloat16_bound);
  check_near(wide, record_run<TinyGpt, Serial, float16>(options), float16_bound);
  check_near(wide, record_run<TinyGpt, Serial, Precision<dtrain::bfloat16, dtrain::bfloat16>>(options), bfloat16_bound);
}

TEST_CASE("a GPT learns in bfloat16, under every kind of parallelism") {
  check_learning<TinyGpt, Serial, dtrain::bfloat16>();
  check_learning<TinyGpt, Data2, dtrain::bfloat16>();
  check_learning<TinyGpt, Tensor2, dtrain::bfloat16>();
  check_learning<TinyGpt, Pipeline2, dtrain::bfloat16>();
}

TEST_CASE("a GPT learns in float16 with a scaled loss, and with gradients in bfloat16") {
  check_learning<TinyGpt, Serial, float16>();
  check_learning<TinyGpt, Serial, Precision<dtrain::bfloat16, dtrain::bfloat16>>();
}

namespace dt = dtrain;
using Model = TinyGpt;
using Strategy = Data2;

TEST_CASE("the guide's trainers") {
  run_ranks<Data2>(
      [](auto& rank) {
        const auto text = counting_text();
        // [snippet formats]
        // Parameters and activations in bfloat16, gradients of parameters and everything that is updated in float:
        dt::Trainer<Model, Strategy, dt::AdamW, dt::bfloat16> trainer(rank, {.learning_rate = 1e-3});
        // The same with gradients of parameters in bfloat16 too:
        using Narrow = dt::Precision<dt::bfloat16, dt::bfloat16>;
        dt::Trainer<Model, Strategy, dt::AdamW, Narrow> narrow(rank, {.learning_rate = 1e-3});
        // [end snippet]
        const FitOptions two{.steps = 2, .batch = 4};
        CHECK(trainer.fit(text, two).loss == doctest::Approx(narrow.fit(text, two).loss).epsilon(1e-3));
      },
      {.threads_per_rank = 1});
}

}  // namespace
