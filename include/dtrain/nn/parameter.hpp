// The one description of a parameter, from which everything that touches parameters derives.
#pragma once

#include <string_view>

#include "dtrain/core/random.hpp"
#include "dtrain/nn/features.hpp"
#include "dtrain/nn/layout.hpp"

namespace dtrain::nn {

/// How a parameter starts: a function of (seed, name, element index).
struct Initializer {
  enum class Kind : std::uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  /// The constant, the standard deviation, or the half-width of the uniform range.
  double scale = 0.0;

  [[nodiscard]] double operator()(const RandomStream& stream, Index element) const {
    const auto index = static_cast<std::uint64_t>(element);
    switch (kind) {
      case Kind::normal:
        return scale * stream.normal(index);
      case Kind::uniform:
        return scale * (2.0 * stream.uniform(index) - 1.0);
      case Kind::constant:
        break;
    }
    return scale;
  }
  friend constexpr bool operator==(const Initializer&, const Initializer&) = default;
};

constexpr Initializer constant(double value) { return {Initializer::Kind::constant, value}; }
constexpr Initializer normal(double deviation) { return {Initializer::Kind::normal, deviation}; }
constexpr Initializer uniform(double half_width) { return {Initializer::Kind::uniform, half_width}; }

/// A parameter of a layer: a matrix of [rows, columns], or a vector (columns = 1).
struct Parameter {
  std::string_view name{};  ///< within the layer: "weight", "bias"
  Features rows{};
  Features columns = features_of(1);
  Cut cut = Cut::none;  ///< which axis the tensor ranks share
  Initializer initializer{};
  bool decay = false;      ///< weight decay applies
  bool after_sum = false;  ///< used behind the redistribution of a pending sum (the bias of a layer cut by columns)
  std::string_view tie{};  ///< path of the parameter whose storage this one uses; empty: its own

  [[nodiscard]] constexpr bool vector() const { return columns == features_of(1); }
  [[nodiscard]] constexpr Index local_rows(int degree) const { return rows.local(cut == Cut::rows ? degree : 1); }
  [[nodiscard]] constexpr Index local_columns(int degree) const {
    return columns.local(cut == Cut::columns ? degree : 1);
  }
  /// Elements on one rank, padding included.
  [[nodiscard]] constexpr Index local_size(int degree) const { return local_rows(degree) * local_columns(degree); }
  [[nodiscard]] constexpr Index whole_size() const { return rows.whole() * columns.whole(); }
};

}  // namespace dtrain::nn
