// The conformance suite of layers: what every layer must do, the library's and a user's own.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/ops/host/copy.hpp"
#include "dtrain/testing/equivalence.hpp"
#include "dtrain/testing/gradient_check.hpp"
#include "dtrain/testing/unit_run.hpp"

namespace dtrain::testing {

namespace detail {

/// y = x into memory of its own that nobody keeps, and likewise back: behind it a layer may work in place.
template <nn::Features Width>
struct Copied {
  static constexpr nn::Features input = Width;
  static constexpr nn::Features output = Width;
  static constexpr nn::LayoutRule layouts(nn::Layout incoming, nn::TensorAxis tensor) {
    return nn::element_wise(incoming, tensor);
  }
  static constexpr auto parameters(nn::LayoutRule) { return nn::no_parameters; }
  static constexpr double flops_per_row(Index) { return 0.0; }
  template <class Site, class T>
  static void forward(const Site&, Matrix<const T> x, Matrix<T> y) {
    ops::copy_matrix(device_of<Site>(), x, y);
  }
  template <class Site, class T>
  static void backward_input(const Site&, Matrix<const T> dy, Matrix<T> dx) {
    ops::copy_matrix(device_of<Site>(), dy, dx);
  }

 private:
  template <class Site>
  static Host& device_of() {
    static thread_local Host device;
    return device;
  }
};

/// Everything one pass forward and back gives.
struct UnitResult {
  std::vector<double> output;
  std::vector<double> input_gradient;
  std::vector<double> gradients;
};

inline void require_same_bits(std::string_view what, std::string_view why, std::span<const double> expected,
                              std::span<const double> actual) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (i >= actual.size() || std::memcmp(&expected[i], &actual[i], sizeof(double)) != 0)
      throw Error(concatenate("dtrain: element ", i, " of the layer's ", what, " is ", expected[i], " and then ",
                              i < actual.size() ? actual[i] : 0.0, ": ", why, "."));
}
inline void require_same_bits(std::string_view why, const UnitResult& expected, const UnitResult& actual) {
  require_same_bits("output", why, expected.output, actual.output);
  require_same_bits("input gradient", why, expected.input_gradient, actual.input_gradient);
  require_same_bits("parameter gradients", why, expected.gradients, actual.gradients);
}

template <class Composed>
UnitResult run_unit(const UnitShape& shape, bool poison) {
  Host device;
  UnitRun<Composed> run(device, shape);
  const std::vector<double> input(run.input().begin(), run.input().end());
  run.fill_working_memory(poison);
  UnitResult result;
  result.output = run.forward();
  if (poison) run.poison_for_backward();
  std::vector<double> output_gradient(result.output.size());
  const RandomStream drawn(shape.seed, hash_name("loss"));
  for (std::size_t i = 0; i < output_gradient.size(); ++i) output_gradient[i] = drawn.normal(i);
  result.input_gradient = run.backward(output_gradient);
  result.gradients.assign(run.gradients().begin(), run.gradients().end());
  require_same_bits("input", "it is not the layer's to change", input, run.input());
  return result;
}

/// A second backward pass doubles the gradients of the parameters: they are added to, not set.
template <class Composed>
void check_accumulation(const UnitShape& shape, const UnitResult& once) {
  Host device;
  UnitRun<Composed> run(device, shape);
  for (double& element : run.gradients()) element = 1.0;
  run.forward();
  std::vector<double> output_gradient(once.output.size());
  const RandomStream drawn(shape.seed, hash_name("loss"));
  for (std::size_t i = 0; i < output_gradient.size(); ++i) output_gradient[i] = drawn.normal(i);
  run.backward(output_gradient);
  for (const parallel::LocalParameter& parameter : run.map())
    for (Index i = parameter.offset; i < parameter.range().end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double added = run.gradients()[at] - 1.0;
      if (!(std::abs(added - once.gradients[at]) <= 1e-12 * (1.0 + std::abs(once.gradients[at]))))
        throw Error(concatenate("dtrain: backward_weight makes 1 into ", run.gradients()[at], " at element ",
                                i - parameter.offset, " of ", parameter.name, ", where it should have added ",
                                once.gradients[at], "."));
    }
}

/// A model around a layer whose loss and gradients depend on all that the layer does. A layer that takes cut features
/// follows a linear layer that gives them, any other the residual stream.
template <class L>
struct ModelAround {
  static constexpr bool tokens = nn::takes_tokens<L>;
  static constexpr bool takes_cut_features =
      L::layouts(nn::Layout::split_features, nn::TensorAxis{2, false}).in == nn::Layout::split_features;
  static auto around() {
    using Itself = nn::Named<"layer", L>;
    using After = nn::Named<"after", nn::Linear<L::output, nn::vocabulary_of(5)>>;
    if constexpr (tokens)
      return std::type_identity<nn::Sequence<Itself, After>>{};
    else if constexpr (takes_cut_features)
      return std::type_identity<nn::Sequence<nn::Named<"before", nn::Linear<6, L::input>>, Itself, After>>{};
    else
      return std::type_identity<nn::Sequence<nn::Named<"first", nn::Linear<6, 8>>,
                                             nn::Named<"second", nn::Linear<8, L::input>>, Itself, After>>{};
  }
  using type = typename decltype(around())::type;
};

}  // namespace detail

/// What `check_layer` may assume of a layer.
struct LayerConformanceOptions {
  GradientCheckOptions gradients{};
  /// Samples of the batch that tensor-parallel ranks share; their rows need not divide.
  Index samples = 3;
  double tolerance = 1e-12;
};

/// Checks that a layer keeps the contract of `nn::Layer`, in double:
/// - its gradients agree with finite differences;
/// - it gives the same bits when it is run again, when its memory was full of NaNs before, and when everything but
///   what it asked to save is overwritten between the forward and the backward pass;
/// - it leaves its input alone, and gives the same bits where its flags let it work in place;
/// - it adds to the gradients of its parameters;
/// - between two linear layers, two tensor-parallel ranks train it to the numbers of one, plainly and sequence-parallel
///   (`TensorDegree` of 1 leaves this out, for layers that cannot be cut).
/// Throws Error with the first thing that does not hold.
template <nn::Layer L, int TensorDegree = 2>
void check_layer(const LayerConformanceOptions& options = {}) {
  using Alone = nn::Named<"layer", L>;
  const UnitShape& shape = options.gradients.shape;
  check_gradients<L>(options.gradients);
  const detail::UnitResult first = detail::run_unit<Alone>(shape, false);
  detail::require_same_bits("it is not a function of its inputs and its random stream", first,
                            detail::run_unit<Alone>(shape, false));
  detail::require_same_bits("it reads memory that it has not written, or has not asked to save", first,
                            detail::run_unit<Alone>(shape, true));
  if constexpr (!nn::takes_tokens<L>)
    detail::require_same_bits(
        "between other layers it reads what it has not asked to save, or does not bear to work in place, though "
        "its flags say so",
        first, detail::run_unit<nn::Sequence<detail::Copied<L::input>, Alone, detail::Copied<L::output>>>(shape, true));
  detail::check_accumulation<Alone>(shape, first);
  if constexpr (TensorDegree > 1) {
    using Model = typename detail::ModelAround<L>::type;
    // A large epsilon: AdamW must not blow up gradients that are 0 but for rounding (that of a bias of keys).
    const RunOptions run{.samples = options.samples,
                         .context = shape.context,
                         .steps = 2,
                         .seed = shape.seed,
                         .optimizer = {.epsilon = 1e-2}};
    const RecordedRun serial = record_run<Model, Serial>(run);
    compare_runs(serial, record_run<Model, Strategy<TensorParallel<TensorDegree>>>(run), options.tolerance);
    compare_runs(serial, record_run<Model, Strategy<TensorParallel<TensorDegree, SequenceParallel>>>(run),
                 options.tolerance);
  }
}

}  // namespace dtrain::testing
