// Host memory in one aligned block, counted while it lives.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain {

/// Whether a fresh arena is cleared. Clearing touches every page, so it is asked for.
enum class Contents { uninitialised, zero };

/// What a device remembers about the memory it gave out; shared with the arenas, which may outlive the device.
struct MemoryCount {
  std::atomic<Index> live_bytes{0};
  std::atomic<Index> allocations{0};
};

/// Owns `bytes()` bytes, aligned to 64 and, from 2 MiB on, offered to the system for huge pages.
/// Throws ConfigurationError when the system has no such memory or `bytes` is negative.
class HostArena {
 public:
  static constexpr Index alignment = 64;
  static constexpr Index huge_page = Index{2} << 20;

  HostArena() = default;
  HostArena(Index bytes, Contents contents, std::shared_ptr<MemoryCount> count)
      : bytes_(bytes), count_(std::move(count)) {
    if (bytes < 0) throw ConfigurationError(concatenate("HostArena: a size of ", bytes, " bytes is negative."));
    if (bytes > 0) {
      const Index align = bytes >= huge_page ? huge_page : alignment;
      data_.reset(static_cast<std::byte*>(
          std::aligned_alloc(static_cast<std::size_t>(align), static_cast<std::size_t>(round_up(bytes, align)))));
      if (data_ == nullptr)
        throw ConfigurationError(concatenate("HostArena: the system refused ", bytes,
                                             " bytes of memory; use a smaller model or batch, or more ranks."));
#ifdef MADV_HUGEPAGE
      // Advice only: a refusal changes speed, not results.
      if (align == huge_page)
        (void)::madvise(data_.get(), static_cast<std::size_t>(round_up(bytes, align)), MADV_HUGEPAGE);
#endif
      if (contents == Contents::zero) std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
    }
    if (count_ != nullptr) {
      count_->live_bytes += bytes_;
      ++count_->allocations;
    }
  }
  HostArena(HostArena&& other) noexcept
      : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)), count_(std::move(other.count_)) {}
  HostArena& operator=(HostArena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~HostArena() {
    if (count_ != nullptr) count_->live_bytes -= bytes_;
  }

  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] Index bytes() const { return bytes_; }

  /// `count` elements that begin `offset_bytes` into the arena. Throws Error when they do not fit.
  template <class T>
  [[nodiscard]] std::span<T> elements(Index offset_bytes, Index count) {
    const bool fits = offset_bytes >= 0 && count >= 0 && offset_bytes <= bytes_ &&
                      count <= (bytes_ - offset_bytes) / static_cast<Index>(sizeof(T));
    if (!fits || offset_bytes % static_cast<Index>(alignof(T)) != 0)
      throw Error(concatenate("HostArena: ", count, " elements of ", sizeof(T), " bytes at offset ", offset_bytes,
                              " do not fit into ", bytes_, " bytes."));
    return {reinterpret_cast<T*>(data_.get() + offset_bytes), static_cast<std::size_t>(count)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  std::unique_ptr<std::byte, Free> data_;
  Index bytes_ = 0;
  std::shared_ptr<MemoryCount> count_;
};

}  // namespace dtrain
