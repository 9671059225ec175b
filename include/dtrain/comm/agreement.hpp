// Checks that all ranks hold the same list of parameters, before a collective mixes up what they hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::comm {

/// A parameter as it is compared between ranks.
struct NamedShape {
  std::string_view name;
  std::string_view shape;
  friend constexpr bool operator==(const NamedShape&, const NamedShape&) = default;
};

namespace detail {

/// Name and shape of each entry, each ended by a zero byte.
inline std::string pack(std::span<const NamedShape> entries) {
  std::string text;
  for (const NamedShape& entry : entries) {
    text.append(entry.name).push_back('\0');
    text.append(entry.shape).push_back('\0');
  }
  return text;
}

inline std::vector<NamedShape> unpack(std::string_view text) {
  const auto next = [&] {
    const std::size_t end = text.find('\0');
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end + 1);
    return part;
  };
  std::vector<NamedShape> entries;
  while (!text.empty()) {
    const std::string_view name = next();
    entries.push_back({name, next()});
  }
  return entries;
}

/// The first difference between the lists of rank 0 and of `rank`, as a sentence; empty if there is none.
inline std::string list_difference(std::span<const NamedShape> first, std::span<const NamedShape> other, Index rank) {
  for (std::size_t i = 0; i < first.size() || i < other.size(); ++i) {
    if (i < first.size() && i < other.size() && first[i] == other[i]) continue;
    const auto say = [&](std::span<const NamedShape> list) {
      return i < list.size() ? concatenate("'", list[i].name, "' of shape ", list[i].shape)
                             : concatenate("none (it has ", list.size(), " parameters)");
    };
    return concatenate("Parameter ", i, " differs: rank ", rank, " holds ", say(other), ", rank 0 holds ", say(first));
  }
  return {};
}

}  // namespace detail

/// Collective. Throws ConfigurationError on every rank if any rank's list differs from that of rank 0 in length, names,
/// order or shapes; the sentence names the first such rank and the first parameter that differs.
template <class C>
  requires AllGathers<C, char> && AllGathers<C, std::uint64_t> && AllGathers<C, Index>
[[gnu::cold]] void verify_agreement(C& communicator, std::span<const NamedShape> entries,
                                    std::source_location where = std::source_location::current()) {
  const std::string own = detail::pack(entries);
  const auto ranks = static_cast<std::size_t>(communicator.size());

  // The lists themselves travel only when their hashes differ, which all ranks see alike.
  const std::array<std::uint64_t, 2> fingerprint{hash_name(own), own.size()};
  std::vector<std::uint64_t> fingerprints(2 * ranks);
  communicator.all_gather(fingerprint, std::span(fingerprints), where).wait();
  bool same = true;
  for (std::size_t i = 2; i < fingerprints.size(); ++i) same = same && fingerprints[i] == fingerprints[i - 2];
  if (same) return;

  std::vector<Index> lengths(ranks);
  Index total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    total += lengths[rank] = static_cast<Index>(fingerprints[2 * rank + 1]);
  std::string all(static_cast<std::size_t>(total), '\0');
  communicator.all_gather(own, std::span(all), std::span<const Index>(lengths), where).wait();

  const std::string_view text = all;
  const auto first = detail::unpack(text.substr(0, static_cast<std::size_t>(lengths[0])));
  std::size_t begin = static_cast<std::size_t>(lengths[0]);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const auto length = static_cast<std::size_t>(lengths[rank]);
    const auto other = detail::unpack(text.substr(begin, length));
    begin += length;
    if (const std::string difference = detail::list_difference(first, other, static_cast<Index>(rank));
        !difference.empty())
      throw ConfigurationError(concatenate(difference, ", on communicator '", communicator.name(),
                                           "'. All its ranks must build the same model."),
                               where);
  }
}

}  // namespace dtrain::comm
