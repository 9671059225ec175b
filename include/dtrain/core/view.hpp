// Views of memory that somebody else owns: a matrix of rows and columns, and half-open ranges.
#pragma once

#include <cassert>
#include <span>
#include <type_traits>

#include "dtrain/core/scalar.hpp"

namespace dtrain {

/// A half-open range of indices [begin, end).
struct Range {
  Index begin = 0;
  Index end = 0;
  [[nodiscard]] constexpr Index size() const { return end - begin; }
  [[nodiscard]] constexpr bool contains(Index index) const { return index >= begin && index < end; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// A row-major view of `rows` x `columns` elements; consecutive rows lie `stride` elements apart.
template <class T>
class Matrix {
 public:
  constexpr Matrix() = default;
  constexpr Matrix(T* data, Index rows, Index columns) : Matrix(data, rows, columns, columns) {}
  constexpr Matrix(T* data, Index rows, Index columns, Index stride)
      : data_(data), rows_(rows), columns_(columns), stride_(stride) {}

  /// A view to change converts to a view to read. (A constructor: nvcc warns of a conversion function in `const`
  /// views.)
  template <class Changing>
    requires(!std::is_const_v<Changing> && std::is_same_v<const Changing, T>)
  constexpr explicit(false) Matrix(const Matrix<Changing>& other)
      : Matrix(other.data(), other.rows(), other.columns(), other.stride()) {}

  [[nodiscard]] constexpr T* data() const { return data_; }
  [[nodiscard]] constexpr Index rows() const { return rows_; }
  [[nodiscard]] constexpr Index columns() const { return columns_; }
  [[nodiscard]] constexpr Index stride() const { return stride_; }
  [[nodiscard]] constexpr Index size() const { return rows_ * columns_; }
  [[nodiscard]] constexpr bool contiguous() const { return stride_ == columns_; }
  [[nodiscard]] constexpr T* row(Index r) const { return data_ + r * stride_; }
  [[nodiscard]] constexpr T& operator()(Index r, Index c) const { return data_[r * stride_ + c]; }

  /// Rows [range.begin, range.end).
  [[nodiscard]] constexpr Matrix row_range(Range range) const {
    return {data_ + range.begin * stride_, range.size(), columns_, stride_};
  }
  /// Columns [range.begin, range.end), same stride.
  [[nodiscard]] constexpr Matrix column_range(Range range) const {
    return {data_ + range.begin, rows_, range.size(), stride_};
  }
  /// All elements as one span; the view must be contiguous.
  [[nodiscard]] constexpr std::span<T> flat() const {
    assert(contiguous());
    return {data_, static_cast<std::size_t>(size())};
  }

 private:
  T* data_ = nullptr;
  Index rows_ = 0;
  Index columns_ = 0;
  Index stride_ = 0;
};

/// `value` rounded up to the next multiple of `multiple`.
constexpr Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The share of `part` when `total` things are divided into `parts` contiguous pieces as evenly as possible:
/// the first `total % parts` pieces get one more.
constexpr Range even_share(Index total, Index parts, Index part) {
  const Index base = total / parts;
  const Index extra = total % parts;
  const Index begin = part * base + (part < extra ? part : extra);
  return {begin, begin + base + (part < extra ? 1 : 0)};
}

/// The share of `part` when `parts` pieces of `size` things each, more than enough for `total`, are filled one after
/// the other: the last ones hold less, or nothing.
constexpr Range padded_share(Index total, [[maybe_unused]] Index parts, Index size, Index part) {
  assert(parts * size >= total && part < parts);
  const Index begin = part * size < total ? part * size : total;
  return {begin, total - begin < size ? total : begin + size};
}

}  // namespace dtrain
