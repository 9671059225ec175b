// Pipelines of two to five stages with one to six micro-batches: all finish, and equal one rank.
#include <doctest/doctest.h>

#include "dtrain/models/mlp.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/testing/equivalence.hpp"

namespace dt = dtrain;

namespace {

using Model = dt::models::Mlp<dt::models::MlpShape{.inputs = 3, .hidden = 6, .outputs = 5, .layers = 4}>;

dt::testing::RunOptions options(int micro_batches) {
  return {.samples = 60, .context = 1, .micro_batches = micro_batches, .steps = 2};
}

template <int Stages>
void check(const dt::testing::RecordedRun& serial) {
  for (int m = 1; m <= 6; ++m) {
    using dt::testing::record_run;
    CAPTURE(m);
    CHECK_NOTHROW(dt::testing::compare_runs(
        serial, record_run<Model, dt::Strategy<dt::PipelineParallel<Stages, dt::schedule::GPipe>>>(options(m))));
    CHECK_NOTHROW(dt::testing::compare_runs(
        serial, record_run<Model, dt::Strategy<dt::PipelineParallel<Stages, dt::schedule::OneForwardOneBackward>>>(
                    options(m))));
  }
}

}  // namespace

// fault E1, fault E2
TEST_CASE("fewer, as many and more micro-batches than stages") {
  const auto serial = dt::testing::record_run<Model, dt::Serial>(options(1));
  check<2>(serial);
  check<3>(serial);
  check<4>(serial);
  check<5>(serial);
}
