// Gradients that the data axis reduces in another type than their own: rounded once, in every way of sharing them out.
#include <doctest/doctest.h>

#include "dtrain/models/mlp.hpp"
#include "dtrain/testing/precision_comparison.hpp"

namespace {

using namespace dtrain;
using testing::record_run;
using testing::RecordedRun;
using Half = dtrain::bfloat16;

using Mlp = models::Mlp<models::MlpShape{.inputs = 4, .hidden = 12, .outputs = 3, .layers = 2}>;

template <int Degree, class... Options>
using Data = Strategy<DataParallel<Degree, Options...>>;

template <class S, class Format>
RecordedRun run_under() {
  return record_run<Mlp, S, Format>({.samples = 8, .context = 1, .steps = 2, .learning_rate = 1e-3});
}

// How many elements of all gradients are no bfloat16.
int unrounded(const RecordedRun& run) {
  int count = 0;
  for (const testing::RecordedStep& step : run.steps)
    for (const auto& [name, gradient] : step.gradients)
      for (const double element : gradient)
        count += static_cast<double>(static_cast<float>(Half(static_cast<float>(element)))) != element ? 1 : 0;
  return count;
}

template <class S>
void check_rounded(const RecordedRun& exact) {
  CAPTURE(S::describe());
  const RecordedRun rounded = run_under<S, float>();
  CHECK(unrounded(rounded) == 0);
  CHECK_NOTHROW(testing::compare_precision(exact, rounded, 0.02));
  CHECK(rounded.steps[0].gradient_norm != exact.steps[0].gradient_norm);
}

TEST_CASE("float gradients that are reduced in bfloat16 are rounded, all of them, whoever keeps them") {
  const RecordedRun exact = run_under<Data<2>, float>();
  CHECK(unrounded(exact) > 100);
  check_rounded<Data<2, Reduce<Half>>>(exact);
  check_rounded<Data<4, Reduce<Half>, Zero<1, ShardWithin<2>>>>(exact);
  check_rounded<Data<4, Reduce<Half>, Zero<2, ShardWithin<2>>>>(exact);
}

TEST_CASE("a sum of bfloat16 in float is the sum that a communicator gives: all ranks' terms, rounded once") {
  using Narrow = Precision<Half, Half>;
  const RecordedRun plain = run_under<Data<2>, Narrow>();
  const RecordedRun wide = run_under<Data<2, Reduce<float>>, Narrow>();
  for (std::size_t step = 0; step < plain.steps.size(); ++step)
    CHECK(plain.steps[step].gradients == wide.steps[step].gradients);
}

TEST_CASE("a type that is the gradients' own changes nothing, and one rank has nothing to reduce") {
  static_assert(std::is_same_v<parallel::ReductionType<DataParallel<2, Reduce<float>>, float>, float>);
  static_assert(std::is_same_v<parallel::ReductionType<DataParallel<2, Reduce<Half>>, float>, Half>);
  static_assert(std::is_same_v<parallel::ReductionType<DataParallel<2>, Half>, Half>);
  static_assert(std::is_same_v<parallel::ReductionType<DataParallel<1, Reduce<Half>>, float>, float>);
  CHECK(Data<2, Reduce<Half>>::describe() == "DataParallel<2, Reduce<bfloat16>>");
  CHECK(Data<2, Zero<1>, Reduce<float16>>::describe() == "DataParallel<2, Zero<1>, Reduce<float16>>");
}

}  // namespace
