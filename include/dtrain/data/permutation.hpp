// A shuffled order that needs no memory: any element of it is computed from (seed, epoch, index).
#pragma once

#include <bit>
#include <cstdint>

#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"

namespace dtrain::data {

/// A pseudo-random permutation of 0 .. size-1, for each (seed, epoch) another one.
///
/// A Feistel network with Philox as its round function permutes the next even power of two, and indices that fall
/// outside are permuted again until they fall inside: J. Black and P. Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002, sections 4 and 5 (cycle-walking cipher, generalised-Feistel cipher). Constant memory, no
/// state, the same on every rank.
class Permutation {
 public:
  /// `size` >= 1 and below 2^62.
  constexpr Permutation(std::uint64_t seed, Index epoch, Index size)
      : stream_(seed, hash_name("data.order"), static_cast<std::uint64_t>(epoch)),
        size_(static_cast<std::uint64_t>(size)),
        half_bits_(half_bits(static_cast<std::uint64_t>(size))) {}

  /// The element at `index`, 0 <= index < size.
  [[nodiscard]] constexpr Index operator()(Index index) const {
    auto value = static_cast<std::uint64_t>(index);
    if (size_ <= 1) return 0;
    // Each pass lands inside with a probability above a quarter (above 1/32 for the smallest sizes).
    do value = encipher(value);
    while (value >= size_);
    return static_cast<Index>(value);
  }

 private:
  static constexpr unsigned rounds = 8;

  // Few bits make a Feistel network far from random, so small sizes walk in a domain of at least 64.
  static constexpr unsigned half_bits(std::uint64_t size) {
    const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
    return bits < 6 ? 3 : (bits + 1) / 2;
  }

  [[nodiscard]] constexpr std::uint64_t encipher(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (stream_.block((round << 32) | right)[0] & mask);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  RandomStream stream_;
  std::uint64_t size_;
  unsigned half_bits_;
};

}  // namespace dtrain::data
