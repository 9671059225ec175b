// What the strategies without tensor parallelism lower to.
#include "plan.hpp"
#include "strategies.hpp"

namespace {
const example::Explained<example::dt::Serial> serial("serial");
const example::Explained<example::Data2> data_2("dp2");
const example::Explained<example::Data2Zero3> data_2_zero_3("dp2-zero3");
const example::Explained<example::Pipeline2> pipeline_2("pp2");
const example::Explained<example::Pipeline2ZeroBubble> pipeline_2_zero_bubble("pp2-zb-v");
const example::Explained<example::Pipeline4GPipe> pipeline_4_gpipe("pp4-gpipe");
}  // namespace
