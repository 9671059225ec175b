// The types that a program computes in: parameters and activations, gradients of parameters, and what is updated.
#pragma once

#include <concepts>
#include <string>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain {

/// Parameters, activations and the gradients of activations are of type `P`; gradients of parameters, which are sums
/// over the rows of a whole batch, are of type `G`. The optimizer updates weights of type `Master`: where that is not
/// `P` it keeps them itself, and rounds the parameters from them (P. Micikevicius et al., "Mixed precision training",
/// ICLR 2018, section 3.1).
template <Scalar P, Scalar G = Accumulator<P>>
struct Precision {
  using Parameter = P;
  using Gradient = G;
  using Master = Accumulator<P>;
  static constexpr bool has_master = !std::same_as<Master, P>;
};

namespace detail {
template <class T>
struct PrecisionOf {};
template <Scalar T>
struct PrecisionOf<T> {
  using type = Precision<T>;
};
template <Scalar P, Scalar G>
struct PrecisionOf<Precision<P, G>> {
  using type = Precision<P, G>;
};
}  // namespace detail

/// What a program can compute in: a scalar, or a `Precision`.
template <class T>
concept NumberFormat = requires { typename detail::PrecisionOf<T>::type; };

/// `Precision<T>` for a scalar, a `Precision` as it is.
template <NumberFormat T>
using PrecisionOf = typename detail::PrecisionOf<T>::type;

/// "float", or "bfloat16 with gradients in float" where the two types differ.
template <NumberFormat T>
[[gnu::cold]] std::string describe_precision() {
  using Format = PrecisionOf<T>;
  std::string text(scalar_name<typename Format::Parameter>());
  if constexpr (!std::same_as<typename Format::Gradient, typename Format::Parameter>)
    text += concatenate(" with gradients in ", scalar_name<typename Format::Gradient>());
  return text;
}

}  // namespace dtrain
