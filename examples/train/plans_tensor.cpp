// What the strategies with tensor parallelism lower to.
#include "plan.hpp"
#include "strategies.hpp"

namespace {
const example::Explained<example::Tensor2> tensor_2("tp2");
const example::Explained<example::Tensor2Sequence> tensor_2_sequence("tp2-sp");
const example::Explained<example::Data2Tensor2> data_2_tensor_2("dp2-tp2");
const example::Explained<example::Data2Pipeline2Tensor2> data_2_pipeline_2_tensor_2("dp2-pp2-tp2");
}  // namespace
