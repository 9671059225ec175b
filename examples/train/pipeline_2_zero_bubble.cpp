// Two pipeline stages of two chunks each, in a V, whose backward passes are split so that no stage waits.
#include "run.hpp"
#include "strategies.hpp"

namespace {
const example::Trained<example::Pipeline2ZeroBubble> trained("pp2-zb-v");
}
