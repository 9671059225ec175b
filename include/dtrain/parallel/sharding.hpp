// How a stage's parameter region is cut into shards: what each data-parallel rank keeps under ZeRO.
#pragma once

#include <algorithm>
#include <vector>

#include "dtrain/core/view.hpp"

namespace dtrain::parallel {

/// A part of the region that is gathered and scattered by one call: each rank keeps an even share, uneven by at most
/// one element.
struct ShardGroup {
  Range whole{};                ///< in the region
  Range shard{};                ///< what this rank keeps of it, in the region
  Index stored = 0;             ///< where the shard begins among this rank's shards
  std::vector<Index> counts{};  ///< elements of each rank
};

/// The groups of a region, in order and without gaps, for one of `ranks` ranks. One rank keeps everything where it is.
class Sharding {
 public:
  /// `ends`: where the groups end, ascending.
  constexpr Sharding(const std::vector<Index>& ends, int ranks, int rank) : ranks_(ranks) {
    Index begin = 0;
    for (const Index end : ends) {
      if (end == begin) continue;
      ShardGroup group{.whole = {begin, end}, .stored = size_};
      const Range share = even_share(end - begin, ranks, rank);
      group.shard = {begin + share.begin, begin + share.end};
      for (int r = 0; r < ranks; ++r) group.counts.push_back(even_share(end - begin, ranks, r).size());
      size_ += share.size();
      groups_.push_back(std::move(group));
      begin = end;
    }
  }

  [[nodiscard]] constexpr int ranks() const { return ranks_; }
  [[nodiscard]] constexpr const std::vector<ShardGroup>& groups() const { return groups_; }
  /// Elements that this rank keeps.
  [[nodiscard]] constexpr Index size() const { return size_; }
  /// The groups [first, last) that make up a part of the region; the part must begin and end where groups do.
  [[nodiscard]] constexpr Range groups_of(Range part) const {
    Range found{0, 0};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].whole.end <= part.begin) found.begin = static_cast<Index>(g) + 1;
      if (groups_[g].whole.begin < part.end) found.end = static_cast<Index>(g) + 1;
    }
    return found.end < found.begin ? Range{found.begin, found.begin} : found;
  }
  [[nodiscard]] constexpr const ShardGroup& group(Index index) const {
    return groups_[static_cast<std::size_t>(index)];
  }

  /// Calls `visit(part of the region, where it is stored)` for what this rank keeps of a part of the region.
  template <class Visit>
  constexpr void for_kept(Range part, Visit&& visit) const {
    for (const ShardGroup& group : groups_) {
      const Range kept{std::max(part.begin, group.shard.begin), std::min(part.end, group.shard.end)};
      if (kept.begin < kept.end) visit(kept, group.stored + kept.begin - group.shard.begin);
    }
  }

 private:
  int ranks_;
  Index size_ = 0;
  std::vector<ShardGroup> groups_{};
};

}  // namespace dtrain::parallel
