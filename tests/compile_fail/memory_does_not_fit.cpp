// expect: dtrain: the largest rank of the program needs more memory than it has
// expect: Bytes<1073741824>
// expect: Bytes<1975173120>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/memory.hpp"

using namespace dtrain;

// 124 million parameters on two ranks, with gradients and two optimizer states each.
using Model = models::Gpt<models::GptShape{.vocab = 50257, .context = 1024, .width = 768, .heads = 12, .layers = 12}>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
constexpr Index limit = GiB<1>;
#else
constexpr Index limit = GiB<2>;
#endif

static_assert(RequireFit<Model, Strategy<PipelineParallel<2>>, BatchShape{4, 256, 2}, limit>::value);
