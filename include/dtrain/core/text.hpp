// Builds the sentences of errors and reports out of text and numbers.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtrain {

namespace detail {

/// A piece of a sentence: text, a number or a truth value. One type for all, so that the many sentences of the library
/// share the code that writes them.
class TextPart {
 public:
  template <std::convertible_to<std::string_view> Text>
  explicit TextPart(const Text& text) : kind_(Kind::text), text_(text) {}
  explicit TextPart(char character) : kind_(Kind::character), integer_(character) {}
  // A template, because a literal would rather decay and convert to bool than become a string_view.
  template <std::same_as<bool> Flag>
  explicit TextPart(Flag flag) : kind_(Kind::text), text_(flag ? "true" : "false") {}
  template <std::integral Number>
    requires(!std::same_as<Number, bool> && !std::same_as<Number, char>)
  explicit TextPart(Number number)
      : kind_(std::is_signed_v<Number> ? Kind::integer : Kind::count), integer_(static_cast<long long>(number)) {}
  template <std::floating_point Number>
  explicit TextPart(Number number) : kind_(Kind::real), real_(static_cast<double>(number)) {}

  [[gnu::cold, gnu::noinline]] void append_to(std::string& out) const {
    char digits[64];
    char* const end = digits + sizeof digits;
    std::to_chars_result result{digits, {}};
    switch (kind_) {
      case Kind::text:
        out += text_;
        return;
      case Kind::character:
        out += static_cast<char>(integer_);
        return;
      case Kind::integer:
        result = std::to_chars(digits, end, integer_);
        break;
      case Kind::count:
        result = std::to_chars(digits, end, static_cast<unsigned long long>(integer_));
        break;
      case Kind::real:
        result = std::to_chars(digits, end, real_, std::chars_format::general, 6);
        break;
    }
    out.append(digits, static_cast<std::size_t>(result.ptr - digits));
  }

 private:
  enum class Kind : unsigned char { text, character, integer, count, real };
  Kind kind_;
  std::string_view text_{};
  long long integer_ = 0;
  double real_ = 0.0;
};

[[gnu::cold, gnu::noinline]] inline std::string join_parts(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

}  // namespace detail

/// Joins text and numbers into one string; floating-point numbers are printed with six digits.
template <class... Parts>
[[nodiscard]] std::string concatenate(const Parts&... parts) {
  return detail::join_parts({detail::TextPart(parts)...});
}

/// Joins the elements of a range with a separator: `1, 2, 5`.
template <class Range>
[[nodiscard]] [[gnu::cold]] std::string join(const Range& range, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += separator;
    detail::TextPart(element).append_to(out);
    first = false;
  }
  return out;
}

}  // namespace dtrain
