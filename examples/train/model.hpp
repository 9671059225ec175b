// The model that is trained: a byte-level GPT, which knows nothing of strategies.
#pragma once

#include <dtrain/dtrain.hpp>

namespace example {

namespace dt = dtrain;

// [snippet model]
using Model = dt::models::Gpt<dt::models::GptShape{.vocab = 256, .context = 64, .width = 128, .heads = 4, .layers = 4}>;
// [end snippet]

inline constexpr dt::Index context = 64;

}  // namespace example
