// expect: dtrain: the samples of the batch do not divide over its shares and their micro-batches
// expect: SamplesDivide<6, 2, 2>
#include "dtrain/models/gpt.hpp"
#include "dtrain/parallel/memory.hpp"

using namespace dtrain;

using Model = models::Gpt<models::GptShape{.vocab = 16, .context = 8, .width = 16, .heads = 4, .layers = 2}>;
#ifndef DTRAIN_COMPILE_FAIL_FIXED
constexpr BatchShape batch{6, 8, 2};
#else
constexpr BatchShape batch{8, 8, 2};
#endif

static_assert(RequireFit<Model, Strategy<DataParallel<2>>, batch, GiB<1>>::value);
