// Reduces gradients over an axis that splits the batch in buckets, while the backward pass goes on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::parallel {

/// Contiguous pieces of a gradient region in the order in which the backward pass completes them, gathered into
/// buckets. Which pieces a bucket holds, and the order in which buckets are reduced, follow from the sizes alone:
/// never from which gradient was ready first, so that all ranks reduce the same bytes in the same order.
///
/// `P` is the policy of the axis: its `reduce` begins the reduction of a bucket and returns a `Handle`.
template <class P, class Communicator, class Handle = typename Communicator::Handle>
class GradientBuckets {
 public:
  /// `pieces` must follow each other downwards: each ends where the one before it begins. A bucket closes when it
  /// holds `bucket_elements`; there are at most `most_buckets`, so that a communicator's queue cannot overflow.
  GradientBuckets(const std::vector<Range>& pieces, Index bucket_elements) {
    Index total = 0;
    for (const Range& piece : pieces) total += piece.size();
    bucket_elements = std::max(bucket_elements, (total + most_buckets - 1) / most_buckets);
    for (const Range& piece : pieces) {
      if (buckets_.empty() || buckets_.back().range.size() >= bucket_elements)
        buckets_.push_back({{piece.end, piece.end}, 0, 0});
      if (buckets_.back().range.begin != piece.end)
        throw Error(concatenate("GradientBuckets: a piece that ends at ", piece.end, " follows one that begins at ",
                                buckets_.back().range.begin, "; pieces must follow each other downwards."));
      buckets_.back().range.begin = piece.begin;
      ++buckets_.back().pieces;
      bucket_of_.push_back(buckets_.size() - 1);
    }
    handles_.reserve(buckets_.size());
  }

  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }
  [[nodiscard]] Range bucket(std::size_t index) const { return buckets_[index].range; }

  /// Begins a step.
  void restart() {
    for (Bucket& bucket : buckets_) bucket.ready = 0;
    next_ = 0;
    handles_.clear();
  }
  /// Piece `index` of the list is complete on this rank; begins the reduction of every bucket whose turn has come.
  template <Scalar T>
  void complete(std::size_t index, std::span<T> region, Communicator& communicator) {
    Bucket& bucket = buckets_[bucket_of_[index]];
    if (bucket.ready == bucket.pieces)
      throw Error(concatenate("GradientBuckets: piece ", index, " was completed twice in one step."));
    ++bucket.ready;
    for (; next_ < buckets_.size() && buckets_[next_].ready == buckets_[next_].pieces; ++next_) {
      const Range range = buckets_[next_].range;
      handles_.push_back(P::reduce(
          communicator, region.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()))));
    }
  }
  /// Waits for every bucket. Throws Error if a piece was never completed.
  void finish() {
    if (next_ != buckets_.size())
      throw Error(concatenate("GradientBuckets: bucket ", next_, " of ", buckets_.size(),
                              " was never completed; every gradient must be, before the step ends."));
    for (auto& handle : handles_) handle.wait();
    handles_.clear();
  }

 private:
  static constexpr Index most_buckets = 32;
  struct Bucket {
    Range range;
    int pieces = 0;
    int ready = 0;
  };
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Handle> handles_;
  std::size_t next_ = 0;
};

}  // namespace dtrain::parallel
