// expect: dtrain: this is not a layer: it lacks input, output, layouts, parameters or flops_per_row
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// A function object is no layer: nothing says how wide it is.
struct Scale {
  double operator()(double x) const { return 2 * x; }
};

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<8, 8>, Scale>;
#else
using Model = nn::Sequence<nn::Linear<8, 8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<1>, float>::check());
