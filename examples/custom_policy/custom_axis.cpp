// A policy with an axis of its own, along which gradients are summed as they are along the library's.
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "custom_policy.hpp"

namespace dt = dtrain;

namespace {

// [snippet axis]
/// The nodes of a cluster as an axis of their own: ranks of one node are neighbours. Where a strategy names the data
/// axis before this one, gradients are summed within each node, bucket by bucket, and then across nodes.
struct Nodes {
  static constexpr int order = 250;  // behind data (200), so that a node's ranks are numbered one after another
  static constexpr bool splits_batch = true;
  static constexpr std::string_view name = "nodes";
};

template <int Degree>
struct AcrossNodes {
  using Axis = Nodes;
  static constexpr int degree = Degree;
  static constexpr long long bucket_bytes = 25'000'000;
  static constexpr std::string_view collective = "all-reduce";

  template <class C, class T>
  static typename C::Handle reduce(C& communicator, std::span<T> gradients) {
    return communicator.all_reduce(gradients);
  }
  static std::string describe() { return dt::concatenate("AcrossNodes<", Degree, ">"); }
};
// [end snippet]

// [snippet asserted]
static_assert(dt::parallel::ReducesGradients<AcrossNodes<2>, dt::comm::Threads>);
// [end snippet]

}  // namespace

void compare_across_nodes() {
  // [snippet equivalence]
  using Hierarchy = dt::Strategy<dt::DataParallel<2>, AcrossNodes<2>, dt::TensorParallel<2>>;
  const double exact =
      dt::testing::assert_equivalent<Model, dt::Serial, Hierarchy>({.run = {.samples = 8, .steps = 3}});
  std::printf("serial and %s differ by %.1e\n\n", Hierarchy::describe().c_str(), exact);
  // [end snippet]
  std::printf("%s\n", dt::explain<Model, Hierarchy>({.samples = 8, .context = 8}).c_str());
}
