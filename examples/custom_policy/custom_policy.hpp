// What the two sources of this program share.
#pragma once

#include <dtrain/dtrain.hpp>

/// Small, since policies are about gradients, of whatever model they are.
using Model = dtrain::models::Mlp<dtrain::models::MlpShape{.inputs = 8, .hidden = 16, .outputs = 6, .layers = 2}>;

/// Compares a strategy over an axis of the program's own with the serial run. Throws dtrain::Error where they differ.
void compare_across_nodes();
