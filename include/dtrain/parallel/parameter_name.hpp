// Names of a model's parameters, and whether two of them can be the same where units are repeated.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::parallel {

/// The names that one parameter has in all units of an element: "element.index.path.parameter" for every index below
/// `count`, or "path.parameter" where the element is not repeated and its path is whole. An empty path is left out.
struct ParameterName {
  std::string_view element{};  ///< of a repeated element; empty for others
  Index count = 0;             ///< of its units; 0: not repeated
  std::string_view path{};
  std::string_view parameter{};
};

namespace detail {

// The members of string_view compare pointers with null, which UndefinedBehaviorSanitizer takes out of what g++ can
// evaluate while compiling: hence loops.
constexpr std::size_t first_dot(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && text[at] != '.') ++at;
  return at;
}
constexpr bool same_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

// Gives the components of a name between its dots; the index of a repeated unit is one that stands for many.
class NameComponents {
 public:
  constexpr explicit NameComponents(const ParameterName& name) : name_(name) { enter(0); }

  [[nodiscard]] constexpr bool ended() const { return part_ == 4; }
  [[nodiscard]] constexpr bool is_index() const { return part_ == 1; }
  [[nodiscard]] constexpr std::string_view text() const { return rest_.substr(0, first_dot(rest_)); }
  constexpr void advance() {
    const std::size_t dot = first_dot(rest_);
    if (is_index() || dot == rest_.size())
      enter(part_ + 1);
    else
      rest_.remove_prefix(dot + 1);
  }

 private:
  constexpr void enter(int part) {
    const std::string_view parts[]{name_.element, {}, name_.path, name_.parameter};
    part_ = part;
    while (part_ < 4 && (part_ == 1 ? name_.count == 0 : parts[part_].empty())) ++part_;
    rest_ = part_ < 4 ? parts[part_] : std::string_view{};
  }

  ParameterName name_;
  int part_ = 0;
  std::string_view rest_{};
};

// Whether a component is an index below `count`, written without zeros in front.
constexpr bool is_index_below(std::string_view text, Index count) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return false;
  Index value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    value = 10 * value + (digit - '0');
  }
  return value < count;
}

}  // namespace detail

/// Whether a unit of the one and a unit of the other hold parameters of the same name.
constexpr bool share_a_name(const ParameterName& a, const ParameterName& b) {
  detail::NameComponents left(a);
  detail::NameComponents right(b);
  for (; !left.ended() && !right.ended(); left.advance(), right.advance()) {
    // Of two indices, 0 is below both counts.
    if (left.is_index() && right.is_index()) continue;
    if (left.is_index()    ? !detail::is_index_below(right.text(), a.count)
        : right.is_index() ? !detail::is_index_below(left.text(), b.count)
                           : !detail::same_text(left.text(), right.text()))
      return false;
  }
  return left.ended() && right.ended();
}

/// The whole name of a parameter of a unit, whose own names begin with `prefix`: "blocks.3." or "".
[[gnu::cold]] inline std::string whole_name(std::string_view prefix, std::string_view path,
                                            std::string_view parameter) {
  return concatenate(prefix, path, path.empty() ? "" : ".", parameter);
}

}  // namespace dtrain::parallel
