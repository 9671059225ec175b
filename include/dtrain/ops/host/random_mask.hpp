// Which elements dropout keeps: a function of the random stream and the element's global index.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "dtrain/core/error.hpp"
#include "dtrain/core/random.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::ops::detail {

inline void check_probability(const char* who, double probability) {
  if (!(probability >= 0.0 && probability < 1.0))
    throw Error(concatenate(who, ": a dropout probability of ", probability, " is outside [0, 1)."));
}

/// Factors of consecutive elements: 0 for a dropped one, 1 / (1 - probability) for a kept one. An element is kept
/// when its uniform number is at least `probability`.
class RandomMask {
 public:
  RandomMask(RandomStream stream, double probability)
      : stream_(stream),
        // (word + 1/2) 2^-32 >= p, with the comparison moved to the words.
        least_kept_(
            static_cast<std::uint32_t>(std::min(std::max(0.0, std::ceil(probability * 0x1p32 - 0.5)), 0x1p32 - 1.0))),
        factor_(1.0 / (1.0 - probability)) {}

  /// factors[k] belongs to element first + k, for k in [0, count).
  template <class A>
  void fill(std::uint64_t first, Index count, A* factors) const {
    constexpr Index blocks = 16;
    alignas(64) std::array<std::uint32_t, static_cast<std::size_t>(4 * blocks)> words;
    const A kept = static_cast<A>(factor_);
    const std::uint32_t least_kept = least_kept_;
    for (Index done = 0; done < count;) {
      const std::uint64_t element = first + static_cast<std::uint64_t>(done);
      const std::uint64_t block = element / 4;
      const auto skip = static_cast<Index>(element % 4);
      const Index taken = std::min(count - done, 4 * blocks - skip);
      const Index needed = (skip + taken + 3) / 4;
      // The constant count is compiled into straight SIMD code.
      if (needed == blocks)
        draw(block, blocks, words.data());
      else
        draw(block, needed, words.data());
      const std::uint32_t* const from = words.data() + skip;
      for (Index k = 0; k < taken; ++k) factors[done + k] = from[k] >= least_kept ? kept : A{0};
      done += taken;
    }
  }

 private:
  [[gnu::always_inline]] void draw(std::uint64_t block, Index count, std::uint32_t* words) const {
    for (Index b = 0; b < count; ++b) {
      const auto four = stream_.block(block + static_cast<std::uint64_t>(b));
      for (std::size_t k = 0; k < 4; ++k) words[static_cast<std::size_t>(4 * b) + k] = four[k];
    }
  }

  RandomStream stream_;
  std::uint32_t least_kept_;
  double factor_;
};

}  // namespace dtrain::ops::detail
