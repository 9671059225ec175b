// Builds the sentences of errors and reports out of text and numbers.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtrain {

namespace detail {

inline void append(std::string& out, std::string_view part) { out += part; }
inline void append(std::string& out, char part) { out += part; }
// A template, because a literal would rather decay and convert to bool than become a string_view.
template <std::same_as<bool> Flag>
void append(std::string& out, Flag part) {
  out += part ? "true" : "false";
}

template <class Number>
  requires((std::integral<Number> && !std::same_as<Number, bool>) || std::floating_point<Number>)
void append(std::string& out, Number part) {
  char digits[64];
  std::to_chars_result result{};
  if constexpr (std::floating_point<Number>)
    result = std::to_chars(digits, digits + sizeof digits, part, std::chars_format::general, 6);
  else
    result = std::to_chars(digits, digits + sizeof digits, part);
  out.append(digits, static_cast<std::size_t>(result.ptr - digits));
}

}  // namespace detail

/// Joins text and numbers into one string; floating-point numbers are printed with six digits.
template <class... Parts>
[[nodiscard]] std::string concatenate(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

/// Joins the elements of a range with a separator: `1, 2, 5`.
template <class Range>
[[nodiscard]] std::string join(const Range& range, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += separator;
    detail::append(out, element);
    first = false;
  }
  return out;
}

}  // namespace dtrain
