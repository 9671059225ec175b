// The exceptions of the library: each carries one sentence and the place it was thrown from.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace dtrain {

/// Base of everything the library throws. `what()` is a sentence for the user: who, what, the numbers, what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence, std::source_location where = std::source_location::current())
      : std::runtime_error(sentence), where_(where) {}

  /// Where in the source the error was raised (the caller's line for errors raised by checks).
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  std::source_location where_;
};

/// The user asked for something that cannot be run: batch, world size, options.
class ConfigurationError : public Error {
 public:
  explicit ConfigurationError(const std::string& sentence, std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

/// A file or a corpus is missing, unreadable or malformed.
class DataError : public Error {
 public:
  explicit DataError(const std::string& sentence, std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

/// Ranks called collectives that do not match, or a communicator was used wrongly.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& sentence, std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

/// A blocking wait passed its deadline. Names the operation and the ranks that did not arrive.
class TimeoutError : public CommunicationError {
 public:
  explicit TimeoutError(const std::string& sentence, std::source_location where = std::source_location::current())
      : CommunicationError(sentence, where) {}
};

/// Another rank failed first, and this one was freed from a wait. Never the first cause.
class AbortedError : public CommunicationError {
 public:
  explicit AbortedError(const std::string& sentence, std::source_location where = std::source_location::current())
      : CommunicationError(sentence, where) {}
};

/// A loss, gradient or weight stopped being a finite number.
class NumericalError : public Error {
 public:
  explicit NumericalError(const std::string& sentence, std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

}  // namespace dtrain
