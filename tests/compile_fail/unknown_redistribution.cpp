// expect: dtrain: no redistribution leads from the layout before a layer to the layout that it takes
// expect: KnownRedistribution<
// expect clang: <dtrain::nn::Layout::split_features, dtrain::nn::Layout::split_sequence, OverRows>
// expect gcc: From = dtrain::nn::Layout::split_features
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/parallel/lowered_model.hpp"
#include "dtrain/parallel/strategy.hpp"

using namespace dtrain;

// A layer over whole rows of cut features, which asks for rows cut instead.
struct OverRows {
  static constexpr nn::Features input = nn::features_of(8);
  static constexpr nn::Features output = nn::features_of(8);
  static constexpr nn::LayoutRule layouts(nn::Layout, nn::TensorAxis) {
    return {nn::Layout::split_sequence, nn::Layout::split_sequence, nn::Cut::none};
  }
  static constexpr auto parameters(nn::LayoutRule) { return nn::no_parameters; }
  static constexpr double flops_per_row(Index) { return 0.0; }
};

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Model = nn::Sequence<nn::Linear<4, 8>, OverRows>;
#else
using Model = nn::Sequence<nn::Linear<4, 8>, nn::LayerNorm<8>>;
#endif

static_assert(parallel::LoweredModel<Model, TensorParallel<2>, float>::check());
