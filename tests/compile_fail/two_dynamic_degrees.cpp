// expect: dtrain: the launch can decide one degree of a strategy, not several
// expect: OneDynamicDegree<2>
#include <string>
#include <string_view>

#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

struct Nodes {
  static constexpr int order = 250;
  static constexpr bool splits_batch = true;
  static constexpr std::string_view name = "nodes";
};

template <int Degree>
struct AcrossNodes {
  using Axis = Nodes;
  static constexpr int degree = Degree;
  static std::string describe() { return "AcrossNodes"; }
};

// Of the ranks that there are, any two factors would do.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
using S = Strategy<DataParallel<dynamic>, AcrossNodes<dynamic>>;
#else
using S = Strategy<DataParallel<dynamic>, AcrossNodes<2>>;
#endif

static_assert(S::static_ranks > 0);
