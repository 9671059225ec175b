#include "dtrain/device/host_product.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "dtrain/core/random.hpp"

using namespace dtrain;

namespace {

template <class T>
struct Operand {
  std::vector<T> elements;
  Matrix<T> view;
  Operand(const Operand&) = delete;
  Operand(Index rows, Index columns, Index padding, std::uint64_t seed)
      : elements(static_cast<std::size_t>(rows * (columns + padding)), static_cast<T>(-77.0f)),
        view(elements.data(), rows, columns, columns + padding) {
    const RandomStream stream(seed, 1);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c)
        view(r, c) = static_cast<T>(static_cast<float>(stream.normal(static_cast<std::uint64_t>(r * columns + c))));
  }
};

template <class T, class C = T>
void check_product(Host& device, Index rows, Index columns, Index inner, bool ta, bool tb, double alpha, double beta) {
  const Operand<T> a(ta ? inner : rows, ta ? rows : inner, 3, 1);
  const Operand<T> b(tb ? columns : inner, tb ? inner : columns, 1, 2);
  Operand<C> c(rows, columns, 2, 3);
  const Operand<C> before(rows, columns, 2, 3);
  product<C, T>(device, static_cast<Accumulator<T>>(alpha), a.view, Transpose{ta}, b.view, Transpose{tb},
                static_cast<Accumulator<T>>(beta), c.view);
  // 16-bit results are rounded once: half a unit in the eighth or in the eleventh bit.
  const double bound = std::same_as<C, double>             ? 1e-13
                       : std::same_as<C, float>            ? 1e-5
                       : std::same_as<C, dtrain::bfloat16> ? 0x1p-8 + 1e-5
                                                           : 0x1p-11 + 1e-5;
  for (Index r = 0; r < rows; ++r)
    for (Index q = 0; q < columns; ++q) {
      double sum = 0;
      double size = 1;
      for (Index k = 0; k < inner; ++k) {
        const double term = static_cast<double>(ta ? a.view(k, r) : a.view(r, k)) *
                            static_cast<double>(tb ? b.view(q, k) : b.view(k, q));
        sum += term;
        size += std::fabs(term);
      }
      const double old = static_cast<double>(before.view(r, q));
      CHECK(std::fabs(static_cast<double>(c.view(r, q)) - (alpha * sum + beta * old)) <= bound * size);
    }
  for (Index r = 0; r < rows; ++r)  // the padding between rows belongs to somebody else
    CHECK(static_cast<double>(c.elements[static_cast<std::size_t>(r * (columns + 2) + columns)]) == -77.0);
}

}  // namespace

TEST_CASE_TEMPLATE("products agree with sums in double", T, float, double, dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        check_product<T>(device, 5, 7, 3, ta, tb, 1.0, 0.0);
        check_product<T>(device, 33, 17, 29, ta, tb, 0.5, 1.0);
        check_product<T>(device, 1, 1, 1, ta, tb, 2.0, -1.0);
        check_product<T>(device, 131, 67, 301, ta, tb, 1.0, 1.0);  // large enough to be split, by rows
        check_product<T>(device, 67, 131, 301, ta, tb, 1.0, 0.0);  // and by columns
      }
  }
}

TEST_CASE("a result may be of another type than the operands, and is rounded once") {
  Host device({.threads = 2});
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      check_product<dtrain::bfloat16, float>(device, 33, 17, 29, ta, tb, 0.5, 1.0);
      check_product<dtrain::float16, dtrain::bfloat16>(device, 33, 17, 29, ta, tb, 1.0, 1.0);
      check_product<float, dtrain::bfloat16>(device, 33, 17, 29, ta, tb, 1.0, 0.0);
    }
}

TEST_CASE("products of 16-bit operands go over the edges of blocks") {
  Host device({.threads = 2});
  check_product<dtrain::bfloat16, float>(device, 401, 30, 1030, true, false, 1.0, 1.0);
  check_product<dtrain::float16>(device, 40, 1100, 530, false, true, 1.0, 0.0);
}

TEST_CASE("with beta 0 the old contents have no effect, and an empty sum is 0") {
  Host device;
  std::vector<float> a{1, 2}, b{3, 4}, c{std::numeric_limits<float>::quiet_NaN()};
  product<float>(device, 1.0f, {a.data(), 1, 2}, Transpose::no, {b.data(), 2, 1}, Transpose::no, 0.0f,
                 {c.data(), 1, 1});
  CHECK(c[0] == 11.0f);
  c[0] = std::numeric_limits<float>::quiet_NaN();
  product<float>(device, 1.0f, {a.data(), 1, 0}, Transpose::no, {b.data(), 0, 1}, Transpose::no, 0.0f,
                 {c.data(), 1, 1});
  CHECK(c[0] == 0.0f);
  c[0] = 3;
  product<float>(device, 1.0f, {a.data(), 1, 0}, Transpose::no, {b.data(), 0, 1}, Transpose::no, 2.0f,
                 {c.data(), 1, 1});
  CHECK(c[0] == 6.0f);
}

TEST_CASE("sizes that do not fit together are named") {
  Host device;
  std::vector<float> memory(100);
  CHECK_THROWS_WITH_AS(product<float>(device, 1.0f, {memory.data(), 2, 3}, Transpose::no, {memory.data(), 4, 5},
                                      Transpose::no, 0.0f, {memory.data(), 2, 5}),
                       "product: a 2x3 matrix times a 4x5 matrix does not give a 2x5 matrix.", Error);
}
