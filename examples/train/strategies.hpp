// The strategies that the program offers, as types.
#pragma once

#include "model.hpp"

namespace example {

using Data2 = dt::Strategy<dt::DataParallel<2>>;
using Data2Zero3 = dt::Strategy<dt::DataParallel<2, dt::Zero<3>>, dt::Recompute<dt::recompute::Full>>;
using Tensor2 = dt::Strategy<dt::TensorParallel<2>>;
using Tensor2Sequence = dt::Strategy<dt::TensorParallel<2, dt::SequenceParallel>>;
using Pipeline2 = dt::Strategy<dt::PipelineParallel<2, dt::schedule::OneForwardOneBackward>>;
using Pipeline2ZeroBubble = dt::Strategy<dt::PipelineParallel<2, dt::schedule::ZeroBubbleV>>;
using Pipeline4GPipe = dt::Strategy<dt::PipelineParallel<4, dt::schedule::GPipe>>;
using Data2Tensor2 = dt::Strategy<dt::DataParallel<2>, dt::TensorParallel<2>>;
using Data2Pipeline2Tensor2 =
    dt::Strategy<dt::DataParallel<2>, dt::PipelineParallel<2, dt::schedule::OneForwardOneBackward>,
                 dt::TensorParallel<2>>;

}  // namespace example
