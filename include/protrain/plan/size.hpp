// SPDX-License-Identifier: Apache-2.0
#pragma once
// SIZE: amounts of memory as people write them, read exactly.

#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace protrain::inline v0::plan {

/// Why a piece of text is refused. `reason` is a literal.
struct parse_error {
  text key{};
  text value{};
  char const* reason = "";
  constexpr bool operator==(parse_error const& other) const {
    return key == other.key && value == other.value &&
           std::string_view(reason) == std::string_view(other.reason);
  }

  /// One line for people.
  constexpr text message() const {
    text out;
    if (!key.empty()) {
      out += key.view();
      out += "=";
    }
    out += value.view();
    out += ": ";
    out += std::string_view(reason);
    return out;
  }
};

namespace detail {

struct size_unit {
  std::string_view name;
  std::uint64_t bytes;
};
inline constexpr std::array<size_unit, 8> size_units{{{"TiB", 1ULL << 40},
                                                      {"GiB", 1ULL << 30},
                                                      {"MiB", 1ULL << 20},
                                                      {"KiB", 1ULL << 10},
                                                      {"TB", 1'000'000'000'000},
                                                      {"GB", 1'000'000'000},
                                                      {"MB", 1'000'000},
                                                      {"kB", 1'000}}};

inline constexpr char const* size_help =
    "not a size: write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, as in 24GiB or 1.5GB";
inline constexpr char const* size_overflow = "a size of 2^64 bytes or more";

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Bytes per unit; 0 for an unknown one.
constexpr std::uint64_t unit_bytes(std::string_view name) {
  for (size_unit const& u : size_units) {
    if (u.name == name) {
      return u.bytes;
    }
  }
  return name == "B" ? 1 : 0;
}

/// 0.`digits` of `unit`, rounded down. 20 digits decide: a unit has fewer than 2^41 bytes, and the
/// product of 20 digits and a unit fits 128 bits.
constexpr std::uint64_t fraction_of(std::string_view digits, std::uint64_t unit) {
  __extension__ using wide = unsigned __int128;
  wide numerator = 0;
  wide scale = 1;
  for (char const c : digits.substr(0, 20)) {
    numerator = numerator * 10 + static_cast<unsigned>(c - '0');
    scale *= 10;
  }
  return static_cast<std::uint64_t>(numerator * unit / scale);
}

}  // namespace detail

/// Reads SIZE: an integer or decimal followed by B, kB, MB, GB, TB, KiB, MiB, GiB or TiB; a bare
/// integer is bytes. A fraction of a byte is dropped, so that a budget is never exceeded.
constexpr result<bytes, parse_error> parse_size(std::string_view s) {
  auto const refuse = [&](char const* reason) { return parse_error{{}, text(s), reason}; };
  std::size_t i = 0;
  std::uint64_t whole = 0;
  bool fits = true;
  for (; i < s.size() && detail::is_digit(s[i]); ++i) {
    auto const digit = static_cast<std::uint64_t>(s[i] - '0');
    fits = fits && whole <= (std::numeric_limits<std::uint64_t>::max() - digit) / 10;
    whole = fits ? whole * 10 + digit : 0;
  }
  std::size_t const whole_digits = i;
  std::string_view decimals{};
  if (i < s.size() && s[i] == '.') {
    std::size_t const first = ++i;
    while (i < s.size() && detail::is_digit(s[i])) {
      ++i;
    }
    decimals = s.substr(first, i - first);
    if (decimals.empty()) {
      return refuse(detail::size_help);
    }
  }
  std::string_view const name = s.substr(i);
  std::uint64_t const unit = name.empty() && decimals.empty() ? 1 : detail::unit_bytes(name);
  if (whole_digits == 0 || unit == 0) {
    return refuse(detail::size_help);
  }
  if (!fits || whole > std::numeric_limits<std::uint64_t>::max() / unit) {
    return refuse(detail::size_overflow);
  }
  std::uint64_t const fraction = detail::fraction_of(decimals, unit);
  if (fraction > std::numeric_limits<std::uint64_t>::max() - whole * unit) {
    return refuse(detail::size_overflow);
  }
  return bytes{whole * unit + fraction};
}

/// Appends `n` bytes so that parse_size reads the same number: in the largest binary unit that
/// divides it, else in bytes.
constexpr void append_size(text& out, std::uint64_t n) {
  for (std::size_t i = 0; i < 4; ++i) {
    detail::size_unit const& u = detail::size_units[i];
    if (n >= u.bytes && n % u.bytes == 0) {
      out += n / u.bytes;
      out += u.name;
      return;
    }
  }
  out += n;
  out += "B";
}

}  // namespace protrain::inline v0::plan
