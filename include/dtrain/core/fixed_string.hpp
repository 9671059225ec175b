// A string that can be a template argument.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace dtrain {

/// Holds the characters of a literal: `Named<"attention", ...>`.
template <std::size_t Size>
struct FixedString {
  char characters[Size]{};

  consteval explicit(false) FixedString(const char (&literal)[Size]) { std::copy_n(literal, Size, characters); }
  [[nodiscard]] constexpr std::string_view view() const { return {characters, Size - 1}; }
};

}  // namespace dtrain
