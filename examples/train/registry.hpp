// The strategies that are compiled into this program, by name.
#pragma once

#include <map>
#include <string>

#include "options.hpp"

namespace example {

/// What one strategy can do here.
struct Entry {
  int (*train)(const Options&) = nullptr;
  int (*explain)(const Options&) = nullptr;
};

/// All of them; each source file of a strategy adds its own before main.
inline std::map<std::string, Entry>& registry() {
  static std::map<std::string, Entry> entries;
  return entries;
}

}  // namespace example
