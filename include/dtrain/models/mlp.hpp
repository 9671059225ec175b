// A plain multilayer perceptron over dense features.
#pragma once

#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"

namespace dtrain::models {

/// The sizes of an `Mlp`.
struct MlpShape {
  int inputs = 1;
  int hidden = 1;
  int outputs = 1;
  /// Blocks of two linear layers around a GELU, each added to the residual stream of width `hidden`.
  int layers = 1;
};

namespace detail {

template <MlpShape Shape>
using MlpBlock = nn::Residual<nn::Named<"up", nn::Linear<Shape.hidden, Shape.hidden>>, nn::Gelu<Shape.hidden>,
                              nn::Named<"down", nn::Linear<Shape.hidden, Shape.hidden>>>;

}  // namespace detail

/// Rows of `inputs` features to `outputs` logits.
template <MlpShape Shape>
using Mlp = nn::Sequence<
    nn::Named<"input", nn::Sequence<nn::Named<"up", nn::Linear<Shape.inputs, Shape.hidden>>, nn::Gelu<Shape.hidden>,
                                    nn::Named<"down", nn::Linear<Shape.hidden, Shape.hidden>>>>,
    nn::Named<"blocks", nn::Repeat<Shape.layers, detail::MlpBlock<Shape>>>,
    nn::Named<"output", nn::Linear<Shape.hidden, Shape.outputs, nn::LinearOptions{.divide = false}>>>;

}  // namespace dtrain::models
