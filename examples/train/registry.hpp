// The strategies that are compiled into this program, by name.
#pragma once

#include <map>
#include <string>

#include "options.hpp"

namespace example {

/// What one strategy can do here.
struct Entry {
  int (*train)(const Options&) = nullptr;
  std::string (*explain)(const Options&) = nullptr;
  /// Refuses what would not fit into this machine's memory.
  void (*require_memory)(const Options&) = nullptr;
};

/// All of them; sources add their own before main.
inline std::map<std::string, Entry>& registry() {
  static std::map<std::string, Entry> entries;
  return entries;
}

}  // namespace example
