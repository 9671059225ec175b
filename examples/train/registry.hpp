// The strategies that are compiled into this program, by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <dtrain/dtrain.hpp>

#include "options.hpp"

namespace example {

namespace dt = dtrain;

/// What one strategy can do here.
struct Entry {
  int (*train)(const Options&) = nullptr;
  dt::parallel::Explanation (*explain)(const Options&) = nullptr;
  /// The bytes of every rank, predicted and allocated.
  std::vector<dt::parallel::RankReport> (*allocate)(const Options&) = nullptr;
  /// Refuses what would not fit into this machine's memory.
  void (*require_memory)(const Options&) = nullptr;
};

/// All of them; sources add their own before main.
inline std::map<std::string, Entry>& registry() {
  static std::map<std::string, Entry> entries;
  return entries;
}

}  // namespace example
