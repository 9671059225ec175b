// What the trainer asks of an optimizer: a value type that updates a span of parameters from a span of gradients.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "dtrain/core/scalar.hpp"

namespace dtrain::optim {

/// An elementwise optimizer. It holds hyperparameters only; its state lives in spans that the caller owns, `states`
/// of them, each as long as the parameters and zero before the first update. `state_names` names them in checkpoints.
///
/// `update(device, parameters, gradients, state, learning_rate, gradient_scale, step, decay)`:
/// - every gradient is multiplied by `gradient_scale` first (the clipping coefficient, with the loss scale divided
///   out, see `clip.hpp`);
/// - `step` counts updates from 1 and goes into bias corrections;
/// - `decay` says whether these parameters take weight decay (a parameter's description decides, never its name).
///
/// Elementwise means that updating a parameter in parts equals updating it whole: shards need nothing more.
///
/// Parameters and state are of type `T`, gradients of type `G`, which differs from `T` where a `Precision` says so.
template <class Type, class Device, class T, class G = T>
concept OptimizerFor =
    std::copyable<Type> && std::same_as<std::remove_cvref_t<decltype(Type::states)>, int> && (Type::states >= 0) &&
    std::convertible_to<decltype(Type::state_names[0]), std::string_view> &&
    requires(const Type& optimizer, Device& device, std::span<T> parameters, std::span<const G> gradients,
             std::array<std::span<T>, static_cast<std::size_t>(Type::states)> state, double number, Index step,
             bool decay) { optimizer.update(device, parameters, gradients, state, number, number, step, decay); };

/// Runs the optimizer's own check of its hyperparameters, where it has one.
/// Throws ConfigurationError naming the value that is out of range.
template <class Type>
void validate(const Type& optimizer) {
  if constexpr (requires { optimizer.validate(); }) optimizer.validate();
}

}  // namespace dtrain::optim
