// Counts what a rank asked of a communicator, so that reports and tests can compare it with theory.
#pragma once

#include <array>
#include <cstddef>

#include "dtrain/comm/call_description.hpp"

namespace dtrain::comm {

/// Operations and bytes by kind. Bytes are those of the call (`CallDescription::count` elements), whatever the
/// algorithm; `ring_bytes` turns them into what a rank puts on a wire.
class Traffic {
 public:
  struct Count {
    Index operations = 0;
    Index bytes = 0;
    friend constexpr bool operator==(const Count&, const Count&) = default;
  };

  void record(const CallDescription& call) {
    Count& count = counts_[static_cast<std::size_t>(call.operation)];
    ++count.operations;
    count.bytes += call.bytes();
  }
  [[nodiscard]] Count of(Operation operation) const { return counts_[static_cast<std::size_t>(operation)]; }
  /// All kinds together.
  [[nodiscard]] Count total() const {
    Count sum;
    for (const Count& count : counts_) sum = {sum.operations + count.operations, sum.bytes + count.bytes};
    return sum;
  }

 private:
  std::array<Count, operation_kinds> counts_{};
};

/// Bytes each rank sends when an operation of `bytes` runs on a ring of `ranks`: 2 (n-1)/n for an all-reduce and
/// (n-1)/n for its two halves (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", J. Parallel Distrib. Comput. 69 (2009), section 3).
constexpr double ring_bytes(Operation operation, Index bytes, int ranks) {
  const double all = static_cast<double>(bytes);
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  switch (operation) {
    case Operation::all_reduce:
      return 2 * share * all;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
      return share * all;
    case Operation::broadcast:
    case Operation::send:
      return ranks > 1 ? all : 0;
    default:
      return 0;
  }
}

}  // namespace dtrain::comm
