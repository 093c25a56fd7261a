// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owned host memory, whole pages from the system and never more: an arena must not be rounded up
// to a power of two.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/error.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace protrain::inline v0::device {

inline constexpr std::uint64_t page_bytes = 4096;

/// What a failed `reserve` says: the space, what was asked and held, and what helps.
inline device_error reserve_error(space where,
                                  std::uint64_t asked,
                                  std::uint64_t held,
                                  std::uint64_t limit,
                                  std::source_location at = std::source_location::current()) {
  std::string why = where == space::device ? "device memory" : "pinned host memory";
  why += ": asked for " + std::to_string(asked) + " bytes while " + std::to_string(held) +
         " were held";
  if (limit != 0) {
    why += ", the limit is " + std::to_string(limit);
  }
  why += where == space::device ? "; plan with a smaller device budget"
                                : "; plan with a smaller host budget, or keep more on the device";
  return {"reserve", why, at};
}

/// Anonymous pages; move-only. Contents start as zeros.
class pages {
 public:
  pages() = default;
  pages(pages const&) = delete;
  pages(pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  pages& operator=(pages const&) = delete;
  pages& operator=(pages&& other) noexcept {
    if (this != &other) {
      clear();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~pages() { clear(); }

  /// False, and holding nothing, if the system refuses. What was held is returned first: arenas
  /// are large, and the old contents have no use.
  bool try_reserve(std::uint64_t bytes) {
    clear();
    if (bytes == 0) {
      return true;
    }
    if (bytes > ~std::uint64_t{0} - page_bytes) {
      return false;
    }
    std::uint64_t const whole = round_up(bytes, page_bytes);
    void* const at =
        ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      return false;
    }
    data_ = static_cast<std::byte*>(at);
    bytes_ = whole;
    return true;
  }

  void clear() noexcept {
    if (data_ != nullptr) {
      ::munmap(data_, bytes_);
    }
    data_ = nullptr;
    bytes_ = 0;
  }

  std::byte* data() const noexcept { return data_; }
  /// Bytes held: a multiple of the page.
  std::uint64_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace protrain::inline v0::device
