// SPDX-License-Identifier: Apache-2.0
#pragma once
// A value or the reason there is none, for planning code that neither throws nor allocates on
// failure and runs in constant evaluation (std::expected is C++23).

#include "protrain/core/config.hpp"

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace protrain::inline v0::core {

enum class errc : std::uint8_t {
  none,
  invalid_argument,
  out_of_range,
  no_device_memory,
  no_host_memory,
  nothing_to_evict,
  fingerprint_mismatch,
  not_allowed,
  hazard,
};

/// A code, a literal that says what is wrong, and the number it is about.
struct error {
  errc code = errc::none;
  char const* what = "";
  std::uint64_t number = 0;
  constexpr bool operator==(error const& other) const noexcept {
    return code == other.code && std::string_view(what) == other.what && number == other.number;
  }
};

/// Holds a `T` or an `E`. Asking for the one it doesn't hold is a contract error.
template <class T, class E = error>
class [[nodiscard]] result {
 public:
  using value_type = T;
  using error_type = E;

  // Implicit on purpose, as in std::expected.
  constexpr result(T value) : has_value_(true) { std::construct_at(&value_, std::move(value)); }
  constexpr result(E failure) : has_value_(false) {
    std::construct_at(&failure_, std::move(failure));
  }
  constexpr result(result const& other) : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(&value_, other.value_);
    } else {
      std::construct_at(&failure_, other.failure_);
    }
  }
  constexpr result(result&& other) noexcept : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(&value_, std::move(other.value_));
    } else {
      std::construct_at(&failure_, std::move(other.failure_));
    }
  }
  constexpr result& operator=(result const& other) {
    *this = result(other);
    return *this;
  }
  constexpr result& operator=(result&& other) noexcept {
    if (this != &other) {
      destroy();
      has_value_ = other.has_value_;
      if (has_value_) {
        std::construct_at(&value_, std::move(other.value_));
      } else {
        std::construct_at(&failure_, std::move(other.failure_));
      }
    }
    return *this;
  }
  constexpr ~result() { destroy(); }

  constexpr bool has_value() const noexcept { return has_value_; }
  constexpr explicit operator bool() const noexcept { return has_value_; }

  constexpr T& value() & {
    PROTRAIN_EXPECT(has_value_, "result::value() of a failure");
    return value_;
  }
  constexpr T const& value() const& {
    PROTRAIN_EXPECT(has_value_, "result::value() of a failure");
    return value_;
  }
  constexpr T&& value() && {
    PROTRAIN_EXPECT(has_value_, "result::value() of a failure");
    return std::move(value_);
  }
  constexpr T& operator*() & { return value(); }
  constexpr T const& operator*() const& { return value(); }
  constexpr T* operator->() { return &value(); }
  constexpr T const* operator->() const { return &value(); }

  /// Why there is no value.
  constexpr E const& failure() const {
    PROTRAIN_EXPECT(!has_value_, "result::failure() of a value");
    return failure_;
  }

 private:
  constexpr void destroy() noexcept {
    if (has_value_) {
      std::destroy_at(&value_);
    } else {
      std::destroy_at(&failure_);
    }
  }

  union {
    T value_;
    E failure_;
  };
  bool has_value_;
};

}  // namespace protrain::inline v0::core
