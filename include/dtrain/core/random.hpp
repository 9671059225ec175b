// Random numbers that are a function of (seed, name, index, step), never of the order in which they are drawn.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "dtrain/core/scalar.hpp"

namespace dtrain {

/// Philox 4x32 with 10 rounds: 128 bits of counter and 64 bits of key give 128 random bits.
/// J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// FNV-1a, 64 bits: the number a parameter's or layer's name contributes to its random stream.
constexpr std::uint64_t hash_name(std::string_view name, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char character : name) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3u;
  }
  return hash;
}

/// One stream of random numbers, indexed by element and step. Copies are free and share nothing.
class RandomStream {
 public:
  constexpr RandomStream() = default;
  /// The stream of `name_hash` under `seed`; `step` separates the draws of one training step from the next.
  constexpr RandomStream(std::uint64_t seed, std::uint64_t name_hash, std::uint64_t step = 0) : step_(step) {
    // The key has 64 bits for 128 bits of seed and name: both pass through Philox once.
    const auto mixed = philox4x32({low(seed), high(seed), low(name_hash), high(name_hash)}, {0x64747261u, 0x696e0001u});
    key_ = {mixed[0] ^ mixed[2], mixed[1] ^ mixed[3]};
  }

  /// Four words for the elements 4*block .. 4*block+3.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t block) const {
    return philox4x32({low(block), high(block), low(step_), high(step_)}, key_);
  }
  /// 32 random bits of element `index`.
  [[nodiscard]] constexpr std::uint32_t bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  /// Uniform in (0, 1), never 0 and never 1, with 32 bits.
  [[nodiscard]] constexpr double uniform(std::uint64_t index) const { return unit(bits(index)); }
  /// Standard normal by Box and Muller (1958); elements 2k and 2k+1 share a pair of uniforms.
  [[nodiscard]] double normal(std::uint64_t index) const {
    const auto words = block(index / 4);
    const std::size_t pair = (index % 4) / 2 * 2;
    const double radius = std::sqrt(-2.0 * std::log(unit(words[pair])));
    const double angle = 2.0 * std::numbers::pi * unit(words[pair + 1]);
    return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
  static constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }
  static constexpr double unit(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

  std::array<std::uint32_t, 2> key_{};
  std::uint64_t step_ = 0;
};

}  // namespace dtrain
