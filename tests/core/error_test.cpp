// The kinds of errors: what they say, where they come from, what they are caught as.
#include "dtrain/core/error.hpp"

#include <doctest/doctest.h>

#include <concepts>
#include <string>

TEST_CASE_TEMPLATE("an error carries its sentence and the line that threw it", Kind, dtrain::Error,
                   dtrain::ConfigurationError, dtrain::DataError, dtrain::CommunicationError, dtrain::TimeoutError,
                   dtrain::AbortedError, dtrain::NumericalError) {
  const auto line = static_cast<unsigned>(__LINE__ + 2);
  try {
    throw Kind("rank 3: the batch of 12 does not divide by 8");
  } catch (const dtrain::Error& error) {
    CHECK(std::string(error.what()) == "rank 3: the batch of 12 does not divide by 8");
    CHECK(error.where().line() == line);
    CHECK(std::string(error.where().file_name()).ends_with("error_test.cpp"));
  }
}

TEST_CASE("an error can carry its caller's line") {
  const auto here = std::source_location::current();
  const dtrain::DataError error("the file is empty", here);
  CHECK(error.where().line() == here.line());
}

TEST_CASE("waits that end in error are communication errors, and no kind is a configuration error by accident") {
  static_assert(std::derived_from<dtrain::Error, std::runtime_error>);
  static_assert(std::derived_from<dtrain::TimeoutError, dtrain::CommunicationError>);
  static_assert(std::derived_from<dtrain::AbortedError, dtrain::CommunicationError>);
  static_assert(!std::derived_from<dtrain::DataError, dtrain::ConfigurationError>);
  static_assert(!std::derived_from<dtrain::NumericalError, dtrain::CommunicationError>);
}
