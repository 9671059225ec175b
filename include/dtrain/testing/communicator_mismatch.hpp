// The part of the conformance suite of communicators that is about calls which do not match.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::testing {

/// Throws Error unless `holds`.
inline void require(bool holds, std::string_view claim, std::source_location where = std::source_location::current()) {
  if (!holds) throw Error(concatenate("Conformance: ", claim, " (line ", where.line(), ")."), where);
}

/// Calls `act` on every rank of a group of its own, and requires that each rank gets a CommunicationError of its own
/// (neither a timeout nor an abort) that contains all `fragments`.
template <comm::Communicator C, class Act>
void expect_misuse(C& communicator, std::string_view what, std::initializer_list<std::string_view> fragments, Act act) {
  std::optional<C> group = communicator.split(0, communicator.rank(), "misuse");
  bool reported = false;
  try {
    act(*group);
  } catch (const TimeoutError& error) {
    throw Error(concatenate("Conformance: ", what, " timed out: ", error.what()));
  } catch (const AbortedError& error) {
    throw Error(concatenate("Conformance: ", what, " was only seen as an abort: ", error.what()));
  } catch (const CommunicationError& error) {
    reported = true;
    for (const std::string_view fragment : fragments)
      require(std::string_view(error.what()).find(fragment) != std::string_view::npos,
              concatenate(what, " is reported with '", fragment, "', not as: ", error.what()));
  }
  require(reported, concatenate(what, " is reported to rank ", communicator.rank()));
  communicator.barrier().wait();
}

/// Calls that do not match: each must reach every rank as an error that names two of the ranks and their calls.
template <comm::Communicator C>
void check_mismatches(C& communicator) {
  if (communicator.size() == 1) return;
  const int last = communicator.size() - 1;
  const bool odd = communicator.rank() == last;
  const std::string rank_name = concatenate("rank ", last);
  const std::string_view name = rank_name;
  std::array<float, 8> a{};
  std::array<float, 8> b{};
  std::array<bfloat16, 8> half{};
  const std::span<float> data(a);
  const auto check = [&](std::string_view what, std::initializer_list<std::string_view> fragments, auto act) {
    a.fill(1);
    expect_misuse(communicator, what, fragments, act);
    require(std::ranges::all_of(a, [](float value) { return value == 1; }), concatenate(what, " moves no data"));
  };

  check("another count", {name, "all_reduce #0", "4 float", "3 float"},
        [&](C& group) { group.all_reduce(data.first(odd ? 3 : 4)).wait(); });
  check("another count of a broadcast", {name, "2 float", "3 float"},
        [&](C& group) { group.broadcast(data.first(odd ? 3 : 2), 0).wait(); });
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<float> whole(3 * ranks);
  check("another shard size of an all_gather", {name, "all_gather #0"}, [&](C& group) {
    const std::size_t shard = odd ? 3 : 2;
    group.all_gather(std::span<const float>(data.first(shard)), std::span(whole).first(shard * ranks)).wait();
  });
  check("another shard size of a reduce_scatter", {name, "reduce_scatter #0"}, [&](C& group) {
    const std::size_t shard = odd ? 3 : 2;
    group.reduce_scatter(std::span<const float>(whole).first(shard * ranks), data.first(shard)).wait();
  });
  check("another block size of an all_to_all", {name, "all_to_all #0"}, [&](C& group) {
    std::vector<float> out((odd ? 3 : 2) * ranks);
    group.all_to_all(std::span<const float>(whole).first(out.size()), std::span(out)).wait();
  });
  check("another element type", {name, "float", "bfloat16"}, [&](C& group) {
    if (odd)
      group.all_reduce(std::span(half)).wait();
    else
      group.all_reduce(data).wait();
  });
  check("another reduction", {name, "sum", "maximum"},
        [&](C& group) { group.all_reduce(data, odd ? comm::Reduction::maximum : comm::Reduction::sum).wait(); });
  check("another root", {name, "root 0", "root 1"}, [&](C& group) { group.broadcast(data, odd ? 1 : 0).wait(); });
  check("another order", {name, "all_reduce #0", "broadcast #0"}, [&](C& group) {
    auto first = odd ? group.broadcast(data, 0) : group.all_reduce(data);
    auto second = odd ? group.all_reduce(std::span(b)) : group.broadcast(std::span(b), 0);
    comm::wait_all(first, second);
  });
  check("another kind, after calls that matched", {name, "#1", "barrier", "all_reduce"}, [&](C& group) {
    group.barrier().wait();
    (odd ? group.barrier() : group.all_reduce(data)).wait();
  });
  check("other shards", {name, "shards"}, [&](C& group) {
    std::vector<Index> counts(static_cast<std::size_t>(group.size()), 0);
    counts[static_cast<std::size_t>(last)] = 3;
    counts[0] = odd ? 1 : 2;
    const Index own = counts[static_cast<std::size_t>(group.rank())];
    const Index all = odd ? 4 : 5;
    std::vector<float> out(static_cast<std::size_t>(all));
    group
        .all_gather(std::span<const float>(data.first(static_cast<std::size_t>(own))), std::span(out),
                    std::span(counts))
        .wait();
  });
  check("blocks that do not fit", {name, "all_to_all"}, [&](C& group) {
    std::vector<Index> sends(static_cast<std::size_t>(group.size()), 0);
    std::vector<Index> receives(sends.size(), 0);
    if (group.rank() == 0) sends[static_cast<std::size_t>(last)] = 2;
    if (odd) receives[0] = 3;
    group
        .all_to_all(std::span<const float>(data.first(group.rank() == 0 ? 2 : 0)), std::span(b).first(odd ? 3 : 0),
                    std::span(sends), std::span(receives))
        .wait();
  });
  check("an impossible root", {"root 99", "only ranks 0 to"}, [&](C& group) { group.broadcast(data, 99).wait(); });
  if (communicator.size() == 2) {
    check("a message of another count", {"rank 0", "rank 1", "send", "receive", "4 float", "3 float"}, [&](C& group) {
      if (odd)
        group.receive(data.first(3), 0).wait();
      else
        group.send(data.first(4), 1).wait();
    });
    check("a message of another type", {"rank 0", "rank 1", "float", "bfloat16"}, [&](C& group) {
      if (odd)
        group.receive(std::span(half), 0).wait();
      else
        group.send(data, 1).wait();
    });
  }
}

}  // namespace dtrain::testing
