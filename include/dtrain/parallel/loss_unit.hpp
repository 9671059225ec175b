// The unit that runs together with the loss, chunk by chunk of a micro-batch's rows: its chunks, memory and refusals.
#pragma once

#include <algorithm>

#include "dtrain/parallel/cross_entropy.hpp"
#include "dtrain/parallel/lowered_model.hpp"

namespace dtrain::parallel {

/// A model ends in a unit of its own, which no `Repeat` holds.
template <bool EndsInRepeat>
concept LossUnitStandsAlone = !EndsInRepeat;

/// Layer `L` treats the rows of its input apart from each other.
template <class L>
concept RowsAreApart = nn::row_use<L>() != nn::RowUse::together;

/// Layer `L` need not know where its rows stand in the batch.
template <class L>
concept RowsStandAnywhere = nn::row_use<L>() == nn::RowUse::alone;

/// The unit either takes rows that tensor ranks share out, or shares out none.
template <bool TakesSharedRows, bool SharesRows>
concept RowsAreSharedFromTheStart = bool(TakesSharedRows || !SharesRows);

/// The last unit of a lowered model, as the loss runs it in chunks of rows. Where the unit takes the rows of a
/// sequence-parallel stream, a chunk is of every tensor rank's own rows, equally many of each, and lies gathered in the
/// order of ranks.
template <class Lowered, Scalar T>
struct LossUnit {
  /// Whether the strategy asks for it.
  static constexpr bool apart = Lowered::unit_options.loss_rows > 0;
  static constexpr int element_index = Lowered::elements - 1;
  static constexpr ElementTable element = Lowered::table[element_index];
  static constexpr bool splits_rows = parallel::splits_rows(element.entering);
  static constexpr int degree = Lowered::tensor.degree;
  /// Ranks that share out the rows of a chunk, and what one of them takes.
  static constexpr int shares = splits_rows ? degree : 1;
  static constexpr Index piece = std::max<Index>(Lowered::unit_options.loss_rows / shares, 1);

  /// Rows of the largest chunk of `rows` rows.
  [[nodiscard]] static constexpr Index largest_chunk(Index rows) { return std::min(rows, shares * piece); }
  [[nodiscard]] static constexpr Index chunks(Index rows) {
    return (even_share(rows, shares, 0).size() + piece - 1) / piece;
  }
  /// Rank `share`'s rows of a chunk, counted within the micro-batch.
  [[nodiscard]] static constexpr Range rows_of(Index rows, int share, Index chunk) {
    const Range own = even_share(rows, shares, share);
    const Index begin = std::min(own.begin + chunk * piece, own.end);
    return {begin, std::min(begin + piece, own.end)};
  }
  /// The share of a rank of the tensor axis.
  [[nodiscard]] static constexpr int share_of(int tensor_rank) { return splits_rows ? tensor_rank : 0; }

  struct RowPlace {
    Index chunk = 0;
    Index row = 0;  ///< within the chunk, gathered
  };
  /// Where a row of the micro-batch comes.
  [[nodiscard]] static constexpr RowPlace find(Index rows, Index row) {
    RowPlace place;
    for (int share = 0; share < shares; ++share) {
      const Range own = even_share(rows, shares, share);
      if (own.contains(row)) place = {(row - own.begin) / piece, (row - own.begin) % piece};
    }
    for (int before = 0; before < shares && even_share(rows, shares, before).end <= row; ++before)
      place.row += rows_of(rows, before, place.chunk).size();
    return place;
  }

  /// Where the values of a chunk lie, in rows of the chunk.
  struct Places {
    Extent saved{};
    Extent transient{};
    Extent exchange{};
    Extent gradients{};  ///< slots, one after the other
    Extent statistics{};
    Extent targets{};
    Extent total{};
  };
  static constexpr Places places = [] {
    Places result;
    Extent at = element.output;
    const auto take = [&at](Extent extent) {
      const Extent begin = at;
      at += extent;
      return begin;
    };
    result.saved = take(element.saved);
    result.transient = take(element.transient);
    result.exchange = take(element.exchange);
    result.gradients = take(static_cast<Index>(element.gradient_slots) * element.gradient_slot);
    result.statistics = take(CrossEntropy<Lowered, T>::statistics);
    result.targets = take(splits_rows ? Extent{static_cast<Index>(sizeof(std::int32_t)), 0} : Extent{});
    result.total = at;
    return result;
  }();
};

namespace detail {

template <class U, bool TakesSharedRows, int I>
consteval void check_loss_layer() {
  using L = typename U::template Layer<I>;
  if constexpr (nn::Layer<L>) {
    static_assert(RowsAreApart<L>,
                  "dtrain: ChunkedLoss runs the model's last unit on some of the rows at a time, and the unit holds a "
                  "layer that does not say that its rows are apart; let the layers before the head be units of their "
                  "own, or leave ChunkedLoss out");
    if constexpr (TakesSharedRows && !parallel::splits_rows(U::rules[I].rule.in))
      static_assert(RowsStandAnywhere<L>,
                    "dtrain: ChunkedLoss gathers rows of all sequence-parallel ranks in front of a layer that must "
                    "know where its rows stand in the batch; move the layer out of the model's last unit, or leave "
                    "SequenceParallel or ChunkedLoss out");
  }
}

// Whether a tensor rank holds only some of the rows anywhere in a unit.
template <class U>
consteval bool shares_rows() {
  bool result = false;
  for (const NodeRule& node : U::rules) result = result || node.splits_rows() || parallel::splits_rows(node.leaving);
  return result;
}

}  // namespace detail

/// Refuses, in one sentence each, last units that cannot run in chunks.
template <class Lowered>
consteval void check_loss_unit() {
  constexpr ElementTable element = Lowered::table[Lowered::elements - 1];
  using U = typename Lowered::template UnitOf<Lowered::elements - 1>;
  static_assert(LossUnitStandsAlone<element.repeated>,
                "dtrain: ChunkedLoss runs the model's last unit in chunks of rows, but the model ends in a Repeat; let "
                "a layer of its own, such as the head, end it");
  static_assert(RowsAreSharedFromTheStart<parallel::splits_rows(element.entering), detail::shares_rows<U>()>,
                "dtrain: under SequenceParallel, ChunkedLoss needs a last unit that begins in the residual stream; "
                "this one takes features that the layer before has cut: put both into one Sequence");
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (detail::check_loss_layer<U, parallel::splits_rows(element.entering), static_cast<int>(I)>(), ...);
  }(std::make_index_sequence<static_cast<std::size_t>(U::size)>{});
}

}  // namespace dtrain::parallel
