// Softmax cross entropy over logits that may be cut by vocabulary, or by rows, across the tensor axis.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dtrain/comm/reduction.hpp"
#include "dtrain/ops/host/cross_entropy.hpp"
#include "dtrain/parallel/buffer_plan.hpp"
#include "dtrain/parallel/site.hpp"

namespace dtrain::parallel {

/// Targets of this value are not counted and give no gradient.
inline constexpr std::int32_t ignored_target = -100;

/// The sum of a loss and the number of targets that it was summed over.
using ops::LossSum;

/// The loss of the logits that leave a lowered model. Under vocabulary parallelism a rank holds some columns of every
/// row; maximum, sum and target logit are combined over the tensor axis (M. Shoeybi et al., "Megatron-LM", 2019,
/// section 3), and no rank ever holds a whole row.
template <class Lowered, Scalar T>
struct CrossEntropy {
  static constexpr bool splits_columns = Lowered::leaving == Layout::split_features;
  static constexpr bool splits_rows = parallel::splits_rows(Lowered::leaving);
  static constexpr nn::Features features = Lowered::leaving_features;
  static constexpr Index classes = features.whole();
  static constexpr int degree = Lowered::tensor.degree;
  static_assert(features.count == 1, "dtrain: the model ends in fused features, which are no logits");

  /// Row maximum, sum of exponentials and target logit.
  static constexpr Extent statistics = [] {
    const Index bytes = 3 * static_cast<Index>(sizeof(Accumulator<T>));
    return splits_rows ? Extent{0, bytes} : Extent{bytes, 0};
  }();

  /// Puts one row of logits together, alike on all tensor ranks: `result` holds one element per class.
  template <class Device, class Communicator>
  static void gather_row(const MicroBatch<Device>& batch, Matrix<T> logits, Index row, Communicator& communicator,
                         std::span<T> result) {
    if constexpr (splits_columns) {
      std::vector<T> whole(static_cast<std::size_t>(logits.columns() * degree));
      communicator
          .all_gather(std::span<const T>(logits.row(row), static_cast<std::size_t>(logits.columns())), std::span(whole))
          .wait();
      std::copy_n(whole.begin(), result.size(), result.begin());
    } else if constexpr (splits_rows) {
      // The rank that holds the row gives it, the others add zeros.
      for (auto& value : result) value = T(0.0f);
      if (batch.shard.contains(row)) std::copy_n(logits.row(row - batch.shard.begin), result.size(), result.begin());
      communicator.all_reduce(result).wait();
    } else {
      std::copy_n(logits.row(row), result.size(), result.begin());
    }
  }

  /// One micro-batch of logits.
  template <class Device, class Communicator>
  struct Rows {
    const MicroBatch<Device>& batch;
    Communicator& communicator;
    Matrix<T> logits;                       ///< [local rows, local columns]
    std::span<const std::int32_t> targets;  ///< of the whole micro-batch
    std::byte* memory;                      ///< for the statistics

    /// The loss summed over this rank's rows. Of ranks that hold the same rows, only the first gives more than 0.
    [[nodiscard]] LossSum forward() const {
      ops::cross_entropy_row_max(*batch.device, Matrix<const T>(logits), vocabulary(), classes, maximum());
      if constexpr (splits_columns) communicator.all_reduce(maximum(), comm::Reduction::maximum).wait();
      ops::cross_entropy_row_sum(*batch.device, Matrix<const T>(logits), vocabulary(), classes, own_targets(),
                                 maximum(), sum_exp(), target_logit());
      if constexpr (splits_columns) communicator.all_reduce(std::span(sum_exp().data(), 2 * sum_exp().size())).wait();
      const LossSum sum = ops::cross_entropy_loss(maximum(), sum_exp(), target_logit(), own_targets(), ignored_target);
      return splits_rows || batch.tensor_rank == 0 ? sum : LossSum{};
    }

    /// Turns the logits into their gradient, `scale` times that of the sum.
    void backward(double scale) const {
      ops::cross_entropy_backward(*batch.device, logits, vocabulary(), classes, own_targets(), maximum(), sum_exp(),
                                  scale, ignored_target);
    }

   private:
    using A = Accumulator<T>;
    [[nodiscard]] Range vocabulary() const {
      return splits_columns ? features.parts[0].unit_range(degree, batch.tensor_rank)
                            : features.parts[0].unit_range(1, 0);
    }
    [[nodiscard]] std::span<const std::int32_t> own_targets() const {
      if constexpr (splits_rows)
        return targets.subspan(static_cast<std::size_t>(batch.shard.begin),
                               static_cast<std::size_t>(batch.shard.size()));
      return targets;
    }
    [[nodiscard]] std::span<A> statistic(std::size_t which) const {
      const auto rows = static_cast<std::size_t>(logits.rows());
      return {reinterpret_cast<A*>(memory) + which * rows, rows};
    }
    [[nodiscard]] std::span<A> maximum() const { return statistic(0); }
    // The two sums lie side by side, so that one all-reduce takes both.
    [[nodiscard]] std::span<A> sum_exp() const { return statistic(1); }
    [[nodiscard]] std::span<A> target_logit() const { return statistic(2); }
  };
};

}  // namespace dtrain::parallel
