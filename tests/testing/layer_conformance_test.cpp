// The conformance suite of layers refuses layers that break the contract, each for its own reason.
#include "dtrain/testing/layer_conformance.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>

namespace nn = dtrain::nn;
using dtrain::Index;
using dtrain::Matrix;

namespace {

enum class Breach { none, gradient, unsaved_input, sets_gradients, keeps_state, changes_input, false_in_place };

// y = w * x^2, element by element, with one fault.
template <Breach Fault>
struct Square {
  static constexpr nn::Features input = nn::features_of(4);
  static constexpr nn::Features output = nn::features_of(4);
  static constexpr bool saves_input = Fault != Breach::unsaved_input && Fault != Breach::false_in_place;
  static constexpr bool in_place = Fault == Breach::false_in_place;
  static constexpr nn::LayoutRule layouts(nn::Layout, nn::TensorAxis tensor) { return nn::row_wise(tensor); }
  static constexpr std::array<nn::Parameter, 1> parameters(nn::LayoutRule) {
    return {nn::Parameter{.name = "weight", .rows = input, .initializer = nn::constant(1.0)}};
  }
  static constexpr Index saved_per_row(nn::TensorAxis) { return Fault == Breach::false_in_place ? 4 : 0; }
  static constexpr double flops_per_row(Index) { return 8.0; }

  template <class Site, class T>
  static void forward(const Site& site, Matrix<const T> x, Matrix<T> y) {
    static double calls = 0.0;
    if (Fault == Breach::keeps_state) calls += 1e-13;
    const auto w = site.template parameter<0>().flat();
    for (Index r = 0; r < x.rows(); ++r)
      for (Index c = 0; c < 4; ++c) {
        if (Fault == Breach::changes_input) const_cast<T&>(x(r, c)) = -x(r, c);
        if (Fault == Breach::false_in_place) {
          // Reads a neighbour that in place has been overwritten already.
          site.saved()[r * 4 + c] = x(r, (c + 3) % 4);
          y(r, c) = w[static_cast<std::size_t>(c)] * x(r, (c + 3) % 4) * x(r, (c + 3) % 4);
        } else {
          y(r, c) = w[static_cast<std::size_t>(c)] * x(r, c) * x(r, c) + calls;
        }
      }
  }
  template <class Site, class T>
  static void backward_input(const Site& site, Matrix<const T> dy, Matrix<T> dx) {
    const auto w = site.template parameter<0>().flat();
    std::array<T, 4> gradient{};
    for (Index r = 0; r < dy.rows(); ++r) {
      for (Index c = 0; c < 4; ++c) {
        const auto at = static_cast<std::size_t>(Fault == Breach::false_in_place ? (c + 3) % 4 : c);
        gradient[at] =
            (Fault == Breach::gradient ? 1.9 : 2.0) * w[static_cast<std::size_t>(c)] * kept(site, r, c) * dy(r, c);
      }
      for (Index c = 0; c < 4; ++c) dx(r, c) = gradient[static_cast<std::size_t>(c)];
    }
  }
  template <class Site, class T>
  static void backward_weight(const Site& site, Matrix<const T> dy) {
    const auto dw = site.template gradient<0>().flat();
    for (Index c = 0; c < 4; ++c) {
      double sum = 0.0;
      for (Index r = 0; r < dy.rows(); ++r) sum += kept(site, r, c) * kept(site, r, c) * dy(r, c);
      dw[static_cast<std::size_t>(c)] = Fault == Breach::sets_gradients ? sum : dw[static_cast<std::size_t>(c)] + sum;
    }
  }

 private:
  template <class Site>
  static double kept(const Site& site, Index r, Index c) {
    if constexpr (Fault == Breach::false_in_place)
      return site.saved()[r * 4 + c];
    else
      return site.input()(r, c);
  }
};

template <Breach Fault>
std::string refusal() {
  try {
    dtrain::testing::check_layer<Square<Fault>, 1>();
  } catch (const dtrain::Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a sound layer passes") { CHECK(refusal<Breach::none>() == ""); }
TEST_CASE("a wrong gradient is named with both values") {
  const std::string sentence = refusal<Breach::gradient>();
  CAPTURE(sentence);
  CHECK(contains(sentence, "by element 0 of the input"));
  CHECK(contains(sentence, "finite differences give"));
}
TEST_CASE("gradients are to be added to") { CHECK(contains(refusal<Breach::sets_gradients>(), "should have added")); }
TEST_CASE("a layer holds no state") { CHECK(contains(refusal<Breach::keeps_state>(), "not a function of its inputs")); }
TEST_CASE("a layer leaves its input alone") { CHECK(refusal<Breach::changes_input>() != ""); }
TEST_CASE("an input that is read in the backward pass must be saved") {
  CHECK(contains(refusal<Breach::unsaved_input>(), "has not asked to save"));
}
TEST_CASE("a flag that promises to work in place is tried") {
  CHECK(contains(refusal<Breach::false_in_place>(), "work in place"));
}
