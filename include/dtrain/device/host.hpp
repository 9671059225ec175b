// The host as a device: one rank's share of the processor, its threads and its counted memory.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/device/arena.hpp"
#include "dtrain/device/device.hpp"
#include "dtrain/device/thread_pool.hpp"

namespace dtrain {

/// `threads`: how many threads one rank computes with, the caller among them.
struct HostOptions {
  Index threads = 1;
};

/// The device of one rank on the processor. Used by one thread at a time; neither copied nor moved.
/// Work is split by counts alone, so results depend on the number of threads but never on timing.
class Host {
 public:
  using Arena = HostArena;

  explicit Host(HostOptions options = {})
      : pool_(options.threads),
        count_(std::make_shared<MemoryCount>()),
        scratch_(static_cast<std::size_t>(options.threads)) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] Index threads() const { return pool_.threads(); }

  /// How many parts `parallel_for` makes of `n` items when no part shall be smaller than `grain` items.
  [[nodiscard]] Index parts(Index n, Index grain) const {
    return n <= 0 ? 0 : std::clamp<Index>(n / std::max<Index>(grain, 1), 1, threads());
  }

  /// Calls `f(Range)`, or `f(Range, part)`, once per part of [0, n); part p runs on thread p. With one part this is a
  /// plain call. `f` must not call `parallel_for` of the same device. Exceptions of `f` reach the caller.
  template <class F>
  void parallel_for(Index n, Index grain, F&& f) {
    const Index count = parts(n, grain);
    pool_.run(count, [&f, n, count](Index part) {
      const Range range = even_share(n, count, part);
      if constexpr (std::invocable<F&, Range, Index>)
        f(range, part);
      else
        f(range);
    });
  }

  /// Uninitialised memory unless asked otherwise, counted in `live_bytes()` until the arena dies.
  [[nodiscard]] Arena allocate(Index bytes, Contents contents = Contents::uninitialised) {
    return Arena(bytes, contents, count_);
  }
  /// Bytes of the arenas alive now, as they were asked for.
  [[nodiscard]] Index live_bytes() const { return count_->live_bytes.load(); }
  /// How many allocations were made so far, arenas and growths of scratch: constant once a program has warmed up.
  [[nodiscard]] Index allocations() const { return count_->allocations.load() + scratch_growths_; }

  /// Working memory of thread `part`, at least `bytes` long and aligned to 64. It is kept between calls and grows on
  /// demand; its contents last until the same thread's scratch is asked for again. Not part of `live_bytes()`.
  /// Inside `parallel_for` ask only after `reserve_scratch`.
  [[nodiscard]] std::byte* scratch(Index part, Index bytes) {
    Arena& arena = scratch_[static_cast<std::size_t>(part)];
    if (arena.bytes() < bytes) {
      arena = Arena();  // the old block goes first: its contents are not needed
      arena = Arena(bytes, Contents::uninitialised, nullptr);
      ++scratch_growths_;
    }
    return arena.data();
  }
  /// Makes sure that `scratch(part, bytes)` of each of the first `parts` threads will not allocate.
  void reserve_scratch(Index parts, Index bytes) {
    for (Index part = 0; part < parts; ++part) (void)scratch(part, bytes);
  }
  [[nodiscard]] Index scratch_bytes() const {
    Index sum = 0;
    for (const Arena& arena : scratch_) sum += arena.bytes();
    return sum;
  }

  /// out = in; the lengths must agree, the spans may not overlap unless they are the same.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void copy(std::span<const T> in, std::span<T> out) {
    if (in.size() != out.size())
      throw Error(concatenate("Host: a copy of ", in.size(), " elements into ", out.size(), " was asked for."));
    if (in.data() == out.data()) return;
    parallel_for(static_cast<Index>(in.size()), copy_grain / static_cast<Index>(sizeof(T)), [&](Range range) {
      std::memcpy(out.data() + range.begin, in.data() + range.begin,
                  static_cast<std::size_t>(range.size()) * sizeof(T));
    });
  }
  template <class T>
    requires(!std::is_const_v<T>)
  void copy(std::span<T> in, std::span<T> out) {
    copy(std::span<const T>(in), out);
  }
  /// Every element = value.
  template <class T>
  void fill(std::span<T> out, std::type_identity_t<T> value) {
    parallel_for(static_cast<Index>(out.size()), copy_grain / static_cast<Index>(sizeof(T)),
                 [&](Range range) { std::fill(out.data() + range.begin, out.data() + range.end, value); });
  }

  /// Host operations have ended when their call returns.
  void synchronize() {}

 private:
  // One thread fills its share of memory bandwidth before it pays to wake another.
  static constexpr Index copy_grain = Index{256} << 10;

  ThreadPool pool_;
  std::shared_ptr<MemoryCount> count_;
  std::vector<Arena> scratch_;
  Index scratch_growths_ = 0;
};

static_assert(Device<Host>);

}  // namespace dtrain
