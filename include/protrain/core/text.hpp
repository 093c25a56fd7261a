// SPDX-License-Identifier: Apache-2.0
#pragma once
// An owning string for values that must exist in constant evaluation, where std::string of
// libstdc++ 12 can't.

#include "protrain/core/config.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace protrain::inline v0::core {

/// A name: regular, ordered like its characters.
class text {
 public:
  constexpr text() = default;
  // Implicit on purpose: a literal is a name.
  constexpr text(std::string_view s) : characters_(s.begin(), s.end()) {}
  constexpr text(char const* s) : text(std::string_view(s)) {}

  constexpr std::string_view view() const noexcept {
    return {characters_.data(), characters_.size()};
  }
  constexpr bool empty() const noexcept { return characters_.empty(); }
  constexpr text& operator+=(std::string_view s) {
    characters_.insert(characters_.end(), s.begin(), s.end());
    return *this;
  }
  /// Appends `n` in decimal.
  constexpr text& operator+=(std::uint64_t n) {
    char digits[20] = {};
    std::size_t first = 20;
    do {
      digits[--first] = static_cast<char>('0' + n % 10);
      n /= 10;
    } while (n != 0);
    return *this += std::string_view(digits + first, 20 - first);
  }
  friend constexpr bool operator==(text const& a, text const& b) noexcept {
    return a.view() == b.view();
  }
  friend constexpr std::strong_ordering operator<=>(text const& a, text const& b) noexcept {
    return a.view() <=> b.view();
  }

 private:
  std::vector<char> characters_{};
};

}  // namespace protrain::inline v0::core
