// Writes JSON: objects and lists of numbers and text, one inside the other.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include "dtrain/core/text.hpp"

namespace dtrain {

/// One JSON object in the making. Numbers are written with all their digits; what is no number becomes null. Elements
/// of lists begin on lines of their own.
class JsonText {
 public:
  template <std::floating_point Number>
  JsonText& add(std::string_view key, Number value) {
    name(key);
    if (!std::isfinite(value)) {
      text_ += "null";
      return *this;
    }
    char digits[64];
    const auto result = std::to_chars(digits, digits + sizeof digits, value);
    text_.append(digits, static_cast<std::size_t>(result.ptr - digits));
    return *this;
  }
  template <std::integral Number>
    requires(!std::same_as<Number, bool>)
  JsonText& add(std::string_view key, Number value) {
    name(key);
    text_ += concatenate(value);
    return *this;
  }
  JsonText& add(std::string_view key, std::string_view value) {
    name(key);
    quote(value);
    return *this;
  }

  /// Begins an object within an object, until `end`.
  JsonText& object(std::string_view key) {
    name(key);
    return open('{');
  }
  /// Begins a list within an object, until `end`.
  JsonText& list(std::string_view key) {
    name(key);
    return open('[');
  }
  /// Begins an object that is the next element of a list.
  JsonText& element() {
    separate();
    text_ += '\n';
    return open('{');
  }
  JsonText& end() {
    text_ += open_.back() == '{' ? '}' : ']';
    open_.pop_back();
    empty_ = false;
    return *this;
  }
  /// The text, with all that is open ended.
  [[nodiscard]] std::string finish() {
    while (!open_.empty()) end();
    return text_ + "\n";
  }

 private:
  JsonText& open(char bracket) {
    text_ += bracket;
    open_ += bracket;
    empty_ = true;
    return *this;
  }
  void separate() {
    if (!empty_) text_ += ", ";
    empty_ = false;
  }
  void name(std::string_view key) {
    separate();
    quote(key);
    text_ += ": ";
  }
  void quote(std::string_view value) {
    text_ += '"';
    for (const char character : value) {
      if (character == '"' || character == '\\') {
        text_ += '\\';
        text_ += character;
      } else if (static_cast<unsigned char>(character) < 0x20) {
        constexpr std::string_view hex = "0123456789abcdef";
        text_ += "\\u00";
        text_ += hex[static_cast<unsigned char>(character) / 16];
        text_ += hex[static_cast<unsigned char>(character) % 16];
      } else {
        text_ += character;
      }
    }
    text_ += '"';
  }

  std::string text_ = "{";
  std::string open_ = "{";
  bool empty_ = true;
};

}  // namespace dtrain
