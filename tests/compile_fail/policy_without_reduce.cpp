// expect: dtrain: the policy of an axis that splits the batch lacks reduce(communicator, gradients) or bucket_bytes
// expect: ReducesGradients
#include <span>
#include <string>

#include "dtrain/comm/threads.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/parallel/gradient_reduction.hpp"

using namespace dtrain;

// An axis that splits the batch needs to say how gradients are summed.
struct Halves {
  using Axis = parallel::axes::Data;
  static constexpr int degree = 2;
  static constexpr long long bucket_bytes = 4096;
  static std::string describe() { return "Halves"; }
#ifdef DTRAIN_COMPILE_FAIL_FIXED
  template <class C, class T>
  static typename C::Handle reduce(C& communicator, std::span<T> gradients) {
    return communicator.all_reduce(gradients);
  }
#endif
};

using Lowered = parallel::LoweredModel<nn::Sequence<nn::Linear<8, 8>>, TensorParallel<1>, float>;
static_assert(sizeof(parallel::GradientReduction<Lowered, Strategy<Halves>, float, Host, comm::Threads>) > 0);
