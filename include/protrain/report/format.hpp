// SPDX-License-Identifier: Apache-2.0
#pragma once
// Amounts for people: three or four digits and a unit. Files hold exact numbers instead.

#include "protrain/core/units.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace protrain::inline v0::report {

/// `x` with `digits` behind the point.
inline std::string fixed(double x, int digits) {
  std::array<char, 340> out{};
  auto const written =
      std::to_chars(out.data(), out.data() + out.size(), x, std::chars_format::fixed, digits);
  return {out.data(), written.ptr};
}

namespace detail {

/// In the largest unit that leaves at least 1; units grow by `step`.
template <std::size_t N>
std::string scaled(double x, double step, std::array<std::string_view, N> const& units) {
  std::size_t u = 0;
  while (u + 1 < N && x >= step) {
    x /= step;
    ++u;
  }
  int const digits = x < 10 ? 2 : 1;
  return fixed(x, u == 0 ? 0 : digits) + std::string(units[u]);
}

}  // namespace detail

/// 1.50 GiB.
inline std::string human_bytes(std::uint64_t n) {
  constexpr std::array<std::string_view, 6> units{" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return detail::scaled(static_cast<double>(n), 1024, units);
}

/// 2.70M.
inline std::string human_count(std::uint64_t n) {
  constexpr std::array<std::string_view, 5> units{"", "k", "M", "G", "T"};
  return detail::scaled(static_cast<double>(n), 1000, units);
}

/// 12.3 ms.
inline std::string human_time(picoseconds t) {
  constexpr std::array<std::string_view, 4> units{" ps", " ns", " us", " ms"};
  if (t.value >= 1'000'000'000'000) {
    return fixed(t.seconds(), t.value < 10'000'000'000'000 ? 2 : 1) + " s";
  }
  return detail::scaled(static_cast<double>(t.value), 1000, units);
}

/// `s` in a column of `width`, to the right.
inline std::string right(std::string_view s, std::size_t width) {
  return std::string(s.size() < width ? width - s.size() : 0, ' ').append(s);
}

/// `s` in a column of `width`, to the left.
inline std::string left(std::string_view s, std::size_t width) {
  std::string out(s);
  out.resize(out.size() < width ? width : out.size(), ' ');
  return out;
}

}  // namespace protrain::inline v0::report
