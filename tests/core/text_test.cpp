// concatenate and join: the exact characters of every kind of part; FixedString.
#include "dtrain/core/text.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/fixed_string.hpp"

using dtrain::concatenate;
using dtrain::join;

TEST_CASE("concatenate prints text, numbers, characters and truth values") {
  CHECK(concatenate() == "");
  CHECK(concatenate("rank ", 3, " of ", std::int64_t{8}) == "rank 3 of 8");
  CHECK(concatenate(std::string("a"), std::string_view("b"), 'c', "d") == "abcd");
  CHECK(concatenate(true, ' ', false) == "true false");
  CHECK(concatenate(-1, ' ', std::uint8_t{255}, ' ', std::size_t{0}) == "-1 255 0");
  CHECK(concatenate(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(concatenate(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
}

TEST_CASE("concatenate prints floating-point numbers with six digits") {
  CHECK(concatenate(0.5) == "0.5");
  CHECK(concatenate(1.0f) == "1");
  CHECK(concatenate(3.14159265) == "3.14159");
  CHECK(concatenate(1e-12) == "1e-12");
  CHECK(concatenate(123456789.0) == "1.23457e+08");
  CHECK(concatenate(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(concatenate(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("join puts separators between, never around") {
  CHECK(join(std::vector<int>{}) == "");
  CHECK(join(std::vector<int>{4}) == "4");
  CHECK(join(std::vector<int>{1, 2, 5}) == "1, 2, 5");
  CHECK(join(std::array<const char*, 2>{"a", "b"}, " x ") == "a x b");
}

TEST_CASE("a literal can be a template argument") {
  const auto length = []<dtrain::FixedString Name>() { return Name.view().size(); };
  CHECK(length.operator()<"attention">() == 9);
  static_assert(dtrain::FixedString("abc").view() == "abc");
  static_assert(dtrain::FixedString("").view().empty());
}
