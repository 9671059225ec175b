// Matrix, Range, even_share: exact values of small cases, and the whole of what a partition must satisfy.
#include "dtrain/core/view.hpp"

#include <doctest/doctest.h>

#include <array>
#include <concepts>
#include <type_traits>

using dtrain::even_share;
using dtrain::Index;
using dtrain::Matrix;
using dtrain::Range;

TEST_CASE("a range knows its size and its members") {
  constexpr Range range{2, 5};
  static_assert(range.size() == 3);
  CHECK_FALSE(range.contains(1));
  CHECK(range.contains(2));
  CHECK(range.contains(4));
  CHECK_FALSE(range.contains(5));
  CHECK(Range{}.size() == 0);
  CHECK(range == Range{2, 5});
  CHECK(range != Range{2, 6});
}

TEST_CASE("a matrix addresses rows and columns by its stride") {
  std::array<double, 12> storage{};
  for (std::size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<double>(i);

  const Matrix<double> whole(storage.data(), 3, 4);
  CHECK(whole.rows() == 3);
  CHECK(whole.columns() == 4);
  CHECK(whole.stride() == 4);
  CHECK(whole.size() == 12);
  CHECK(whole.contiguous());
  CHECK(whole(2, 3) == 11.0);
  CHECK(whole.row(1) == storage.data() + 4);
  CHECK(whole.flat().size() == 12);
  CHECK(whole.flat().data() == storage.data());

  const Matrix<double> middle = whole.column_range({1, 3});
  CHECK(middle.rows() == 3);
  CHECK(middle.columns() == 2);
  CHECK(middle.stride() == 4);
  CHECK_FALSE(middle.contiguous());
  CHECK(middle(0, 0) == 1.0);
  CHECK(middle(2, 1) == 10.0);

  const Matrix<double> last = whole.row_range({1, 3});
  CHECK(last.rows() == 2);
  CHECK(last.contiguous());
  CHECK(last(0, 0) == 4.0);

  const Matrix<double> corner = middle.row_range({2, 3});
  CHECK(corner.size() == 2);
  CHECK(corner(0, 0) == 9.0);
  corner(0, 0) = -1.0;
  CHECK(storage[9] == -1.0);
}

TEST_CASE("a view to change becomes a view to read, and never the reverse") {
  static_assert(std::convertible_to<Matrix<float>, Matrix<const float>>);
  static_assert(!std::convertible_to<Matrix<const float>, Matrix<float>>);
  std::array<float, 2> storage{1.0f, 2.0f};
  const Matrix<const float> read = Matrix<float>(storage.data(), 1, 2);
  CHECK(read(0, 1) == 2.0f);
  static_assert(std::is_same_v<decltype(read(0, 0)), const float&>);
}

TEST_CASE("an empty matrix is contiguous and has no elements") {
  const Matrix<float> none;
  CHECK(none.size() == 0);
  CHECK(none.contiguous());
  CHECK(none.data() == nullptr);
}

TEST_CASE("round_up gives the next multiple") {
  static_assert(dtrain::round_up(0, 8) == 0);
  static_assert(dtrain::round_up(1, 8) == 8);
  static_assert(dtrain::round_up(8, 8) == 8);
  static_assert(dtrain::round_up(9, 8) == 16);
  static_assert(dtrain::round_up(50257, 128) == 50304);
}

TEST_CASE("even_share of 10 things in 4 parts") {
  CHECK(even_share(10, 4, 0) == Range{0, 3});
  CHECK(even_share(10, 4, 1) == Range{3, 6});
  CHECK(even_share(10, 4, 2) == Range{6, 8});
  CHECK(even_share(10, 4, 3) == Range{8, 10});
}

TEST_CASE("even_share partitions: contiguous, complete, sizes differ by at most one, larger ones first") {
  for (Index total = 0; total <= 40; ++total)
    for (Index parts = 1; parts <= 12; ++parts) {
      CAPTURE(total);
      CAPTURE(parts);
      Index next = 0;
      Index previous = total + 1;
      for (Index part = 0; part < parts; ++part) {
        const Range share = even_share(total, parts, part);
        REQUIRE(share.begin == next);
        REQUIRE(share.size() <= previous);
        REQUIRE(share.size() >= total / parts);
        REQUIRE(share.size() <= total / parts + (total % parts != 0 ? 1 : 0));
        next = share.end;
        previous = share.size();
      }
      REQUIRE(next == total);
    }
}
