// Softmax cross entropy in steps, so that ranks which hold parts of the vocabulary can combine rows in between.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/ops/host/arguments.hpp"
#include "dtrain/ops/host/exp.hpp"
#include "dtrain/ops/host/lanes.hpp"

namespace dtrain::ops {

/// A sum of token losses in nats and the number of tokens that were counted.
struct LossSum {
  double sum = 0.0;
  Index tokens = 0;

  constexpr LossSum& operator+=(const LossSum& part) {
    sum += part.sum;
    tokens += part.tokens;
    return *this;
  }
};

/// Throws DataError, naming row and value, when a target is neither `ignore_index` nor in [0, valid_vocabulary).
inline void check_targets(std::span<const std::int32_t> targets, Index valid_vocabulary, Index ignore_index) {
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const Index target = targets[row];
    if (target != ignore_index && (target < 0 || target >= valid_vocabulary))
      throw DataError(concatenate("cross_entropy: the target of row ", row, " is ", target, "; it must lie in [0, ",
                                  valid_vocabulary, ") or be ", ignore_index, ", the ignored value."));
  }
}

namespace detail {

/// How many of the local columns are real words; the rest is padding, whose contents are never read.
constexpr Index valid_columns(Range vocabulary, Index valid_vocabulary) {
  return std::clamp<Index>(valid_vocabulary - vocabulary.begin, 0, vocabulary.size());
}

inline void check_logits(const char* who, Index rows, Index columns, Range vocabulary, std::size_t per_row) {
  check_length(who, "a row statistic", per_row, rows);
  if (columns != vocabulary.size())
    throw Error(concatenate(who, ": logits of ", columns, " columns stand for the vocabulary range [", vocabulary.begin,
                            ", ", vocabulary.end, ")."));
}

}  // namespace detail

/// maximum[r] = the largest valid local logit of row r; minus infinity if this part holds padding alone.
/// logits [R, Vlocal]; local column c is word vocabulary.begin + c; words from `valid_vocabulary` on are padding.
template <Scalar T>
void cross_entropy_row_max(Host& device, Matrix<const T> logits, Range vocabulary, Index valid_vocabulary,
                           std::type_identity_t<std::span<Accumulator<T>>> maximum) {
  using A = Accumulator<T>;
  detail::check_logits("cross_entropy_row_max", logits.rows(), logits.columns(), vocabulary, maximum.size());
  const Index valid = detail::valid_columns(vocabulary, valid_vocabulary);
  device.parallel_for(logits.rows(), detail::grain_for(valid), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const T* const row = logits.row(r);
      maximum[static_cast<std::size_t>(r)] =
          detail::lane_max<A>(valid, [row](Index c) { return static_cast<A>(row[c]); });
    }
  });
}
template <Scalar T>
void cross_entropy_row_max(Host& device, Matrix<T> logits, Range vocabulary, Index valid_vocabulary,
                           std::type_identity_t<std::span<Accumulator<T>>> maximum) {
  cross_entropy_row_max(device, Matrix<const T>(logits), vocabulary, valid_vocabulary, maximum);
}

/// sum_exp[r] = sum over the valid local columns of exp(logit - maximum[r]), where `maximum` is that of the whole row;
/// target_logit[r] = the target's logit if the target is among them, else 0. Both are to be summed over the parts.
template <Scalar T>
void cross_entropy_row_sum(Host& device, Matrix<const T> logits, Range vocabulary, Index valid_vocabulary,
                           std::span<const std::int32_t> targets, ReadSpan<Accumulator<T>> maximum,
                           std::type_identity_t<std::span<Accumulator<T>>> sum_exp,
                           std::type_identity_t<std::span<Accumulator<T>>> target_logit) {
  using A = Accumulator<T>;
  constexpr auto who = "cross_entropy_row_sum";
  detail::check_logits(who, logits.rows(), logits.columns(), vocabulary, maximum.size());
  detail::check_length(who, "the target list", targets.size(), logits.rows());
  detail::check_length(who, "sum_exp", sum_exp.size(), logits.rows());
  detail::check_length(who, "target_logit", target_logit.size(), logits.rows());
  const Index valid = detail::valid_columns(vocabulary, valid_vocabulary);
  device.parallel_for(logits.rows(), detail::grain_for(valid * 8), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const T* const row = logits.row(r);
      const A largest = maximum[at];
      sum_exp[at] =
          detail::lane_sum<A>(valid, [row, largest](Index c) { return exp_of(static_cast<A>(row[c]) - largest); });
      const Index column = targets[at] - vocabulary.begin;
      target_logit[at] = column >= 0 && column < valid ? static_cast<A>(row[column]) : A{0};
    }
  });
}
template <Scalar T>
void cross_entropy_row_sum(Host& device, Matrix<T> logits, Range vocabulary, Index valid_vocabulary,
                           std::span<const std::int32_t> targets, ReadSpan<Accumulator<T>> maximum,
                           std::type_identity_t<std::span<Accumulator<T>>> sum_exp,
                           std::type_identity_t<std::span<Accumulator<T>>> target_logit) {
  cross_entropy_row_sum(device, Matrix<const T>(logits), vocabulary, valid_vocabulary, targets, maximum, sum_exp,
                        target_logit);
}

/// The sum over the counted rows of log(sum_exp) + maximum - target_logit, in double, and their number. Rows whose
/// target is `ignore_index` count for nothing.
template <std::floating_point A>
[[nodiscard]] LossSum cross_entropy_loss(std::span<const A> maximum, std::type_identity_t<std::span<const A>> sum_exp,
                                         std::type_identity_t<std::span<const A>> target_logit,
                                         std::span<const std::int32_t> targets, Index ignore_index) {
  const auto rows = static_cast<Index>(targets.size());
  detail::check_length("cross_entropy_loss", "maximum", maximum.size(), rows);
  detail::check_length("cross_entropy_loss", "sum_exp", sum_exp.size(), rows);
  detail::check_length("cross_entropy_loss", "target_logit", target_logit.size(), rows);
  LossSum loss;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == ignore_index) continue;
    // The difference first: both are of the size of the logits, their difference is of the size of the loss.
    loss.sum += std::log(static_cast<double>(sum_exp[row])) +
                (static_cast<double>(maximum[row]) - static_cast<double>(target_logit[row]));
    ++loss.tokens;
  }
  return loss;
}
template <std::floating_point A>
[[nodiscard]] LossSum cross_entropy_loss(std::span<A> maximum, std::type_identity_t<std::span<const A>> sum_exp,
                                         std::type_identity_t<std::span<const A>> target_logit,
                                         std::span<const std::int32_t> targets, Index ignore_index) {
  return cross_entropy_loss(std::span<const A>(maximum), sum_exp, target_logit, targets, ignore_index);
}

/// Turns logits into their gradient in place: (softmax - one-hot) * scale; 0 in ignored rows and padded columns.
/// `maximum` and `sum_exp` are those of the whole rows.
template <Scalar T>
void cross_entropy_backward(Host& device, Matrix<T> logits, Range vocabulary, Index valid_vocabulary,
                            std::span<const std::int32_t> targets, ReadSpan<Accumulator<T>> maximum,
                            ReadSpan<Accumulator<T>> sum_exp, double scale, Index ignore_index) {
  using A = Accumulator<T>;
  constexpr auto who = "cross_entropy_backward";
  detail::check_logits(who, logits.rows(), logits.columns(), vocabulary, maximum.size());
  detail::check_length(who, "the target list", targets.size(), logits.rows());
  detail::check_length(who, "sum_exp", sum_exp.size(), logits.rows());
  const Index valid = detail::valid_columns(vocabulary, valid_vocabulary);
  device.parallel_for(logits.rows(), detail::grain_for(valid * 8), [&](Range rows) {
    for (Index r = rows.begin; r < rows.end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      T* const row = logits.row(r);
      if (targets[at] == ignore_index) {
        std::fill_n(row, logits.columns(), T{0});
        continue;
      }
      const A largest = maximum[at];
      const A factor = static_cast<A>(scale / static_cast<double>(sum_exp[at]));
      const Index column = targets[at] - vocabulary.begin;
      const bool here = column >= 0 && column < valid;
      // The target's element is rounded once, from its exact difference.
      const A target = here ? exp_of(static_cast<A>(row[column]) - largest) * factor - static_cast<A>(scale) : A{0};
      for (Index c = 0; c < valid; ++c) row[c] = static_cast<T>(exp_of(static_cast<A>(row[c]) - largest) * factor);
      if (here) row[column] = static_cast<T>(target);
      std::fill(row + valid, row + logits.columns(), T{0});
    }
  });
}

}  // namespace dtrain::ops
