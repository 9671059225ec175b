// What a rank asked of a communicator: enough to compare it with what the other ranks asked, and to say it in an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "dtrain/comm/element_type.hpp"
#include "dtrain/comm/reduction.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::comm {

/// The operations of a communicator.
enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier,
  split
};
inline constexpr std::size_t operation_kinds = 9;

/// The name of an operation, as errors and reports print it.
constexpr std::string_view operation_name(Operation operation) {
  constexpr std::string_view names[operation_kinds] = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send", "receive", "barrier", "split"};
  return names[static_cast<std::size_t>(operation)];
}

/// One call of one rank.
struct CallDescription {
  Operation operation = Operation::barrier;
  Reduction reduction = Reduction::sum;
  /// Are the shards given one by one (and so perhaps uneven)?
  bool uneven = false;
  /// Root of a broadcast, destination of a send, source of a receive.
  int peer = -1;
  /// Counts the collectives of a communicator, and the messages between two ranks, from 0.
  std::uint64_t sequence = 0;
  ElementType type;
  /// Elements of the whole: the buffer of an all_reduce, the input of a reduce_scatter, the output of an all_gather,
  /// what this rank sends in an all_to_all, the message.
  Index count = 0;
  std::source_location where;

  [[nodiscard]] Index bytes() const { return count * static_cast<Index>(type.size); }
};

/// `model.hpp:42`.
inline std::string place(const std::source_location& where) {
  const std::string_view path = where.file_name();
  const std::size_t slash = path.find_last_of('/');
  return concatenate(slash == std::string_view::npos ? path : path.substr(slash + 1), ":", where.line());
}

/// `all_reduce #5 (sum, 1000 float) at model.hpp:42`; `counts` are the shards of an uneven call.
[[gnu::cold]] inline std::string describe(const CallDescription& call, std::span<const Index> counts = {}) {
  std::string text = concatenate(operation_name(call.operation), " #", call.sequence);
  const bool reduces = call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  if (call.operation != Operation::barrier && call.operation != Operation::split) {
    text += concatenate(" (", reduces ? reduction_name(call.reduction) : "", reduces ? ", " : "", call.count, " ",
                        call.type.name);
    if (call.type.name == "bytes") text += concatenate("[", call.type.size, "]");
    if (call.uneven && !counts.empty() && counts.size() <= 16) text += concatenate(" in shards of ", join(counts));
    if (call.operation == Operation::broadcast) text += concatenate(", root ", call.peer);
    if (call.operation == Operation::send) text += concatenate(", to rank ", call.peer);
    if (call.operation == Operation::receive) text += concatenate(", from rank ", call.peer);
    text += ")";
  }
  return text + " at " + place(call.where);
}

/// May the two calls be the two sides of one collective? Shards are compared by the caller. Places may differ.
inline bool calls_match(const CallDescription& a, const CallDescription& b) {
  if (a.operation != b.operation || a.sequence != b.sequence || a.type != b.type || a.uneven != b.uneven) return false;
  switch (a.operation) {
    case Operation::all_reduce:
    case Operation::reduce_scatter:
      return a.count == b.count && a.reduction == b.reduction;
    case Operation::all_gather:
      return a.count == b.count;
    case Operation::broadcast:
      return a.count == b.count && a.peer == b.peer;
    case Operation::all_to_all:
      return a.uneven || a.count == b.count;
    default:  // barrier and split carry nothing to compare
      return true;
  }
}

}  // namespace dtrain::comm
