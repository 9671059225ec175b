// Two policies written outside the library: one reduces the gradients of the data axis in half the bytes, one (in
// custom_axis.cpp) adds an axis of its own. Both are compared with the serial run.
#include "custom_policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dt = dtrain;

namespace {

// [snippet handle]
/// A reduction that is under way in bfloat16. Once the bytes have arrived, there is more to do than to wait.
template <class T, class Pending>
class RoundedSum {
 public:
  template <class Communicator>
  RoundedSum(Communicator& communicator, std::span<T> gradients)
      : gradients_(gradients),
        rounded_(gradients.begin(), gradients.end()),
        pending_(communicator.all_reduce(std::span(rounded_))) {}

  void wait() {
    pending_.wait();
    std::copy(rounded_.begin(), rounded_.end(), gradients_.begin());
  }

 private:
  std::span<T> gradients_;
  std::vector<dt::bfloat16> rounded_;  ///< outlives the operation that uses it
  Pending pending_;
};
// [end snippet]

// [snippet policy]
/// Data parallelism whose gradients travel as bfloat16: half the bytes of float, with an error of 2^-9 of every term.
template <int Degree>
struct RoundedDataParallel {
  using Axis = dt::parallel::axes::Data;
  static constexpr int degree = Degree;
  static constexpr long long bucket_bytes = 1'000'000;
  static constexpr std::string_view collective = "all-reduce";

  template <class C, class T>
  static auto reduce(C& communicator, std::span<T> gradients) {
    return RoundedSum<T, typename C::Handle>(communicator, gradients);
  }
  static std::string describe() { return dt::concatenate("RoundedDataParallel<", Degree, ">"); }
};
// [end snippet]

static_assert(dt::parallel::ReducesGradients<RoundedDataParallel<2>, dt::comm::Threads>);

/// The largest difference of the two runs' gradients, relative to the largest element of each tensor.
double gradient_difference(const dt::testing::RecordedStep& expected, const dt::testing::RecordedStep& actual) {
  double worst = 0.0;
  for (const auto& [name, gradient] : expected.gradients) {
    double scale = 0.0;
    double difference = 0.0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      scale = std::max(scale, std::abs(gradient[i]));
      difference = std::max(difference, std::abs(gradient[i] - actual.gradients.at(name)[i]));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

}  // namespace

int main() {
  try {
    compare_across_nodes();

    // [snippet bound]
    using Rounded = dt::Strategy<RoundedDataParallel<2>>;
    const dt::testing::RunOptions run{.samples = 8, .steps = 1};
    const auto serial = dt::testing::record_run<Model, dt::Serial>(run);
    const auto rounded = dt::testing::record_run<Model, Rounded>(run);
    const double difference = gradient_difference(serial.steps.front(), rounded.steps.front());
    std::printf("gradients of serial and %s differ by %.1e\n", Rounded::describe().c_str(), difference);
    // Three roundings of 2^-9: of either rank's term and of the sum. A term may be larger than the sum, hence the 4.
    if (!(difference > 0.0 && difference <= 4 * 3 * 0x1p-9)) throw dt::Error("the rounded gradients are too far off");
    // [end snippet]
  } catch (const dt::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
