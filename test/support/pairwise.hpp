// SPDX-License-Identifier: Apache-2.0
#pragma once
// Covering arrays: few rows in which every two values of two axes occur together. Greedy and
// seeded: the same seed gives the same rows everywhere.

#include "protrain/core/config.hpp"
#include "test/support/random_jobs.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::test {

struct axis {
  std::string_view name{};
  std::vector<std::string_view> values{};
};

/// One value, by position, of one axis, by position.
struct setting {
  std::size_t axis = 0;
  std::uint32_t value = 0;
  bool operator==(setting const&) const = default;
};

/// Two settings of one row.
using setting_pair = std::pair<setting, setting>;

/// By axis: the position of its value.
using choice_row = std::vector<std::uint32_t>;

class covering_array {
 public:
  covering_array(std::vector<axis> axes, std::vector<setting_pair> forbidden)
      : axes_(std::move(axes)), forbidden_(std::move(forbidden)) {}

  std::vector<axis> const& axes() const noexcept { return axes_; }

  /// Exactly `count` rows: first those that cover most new pairs each, then random ones.
  std::vector<choice_row> rows(std::size_t count, std::uint64_t seed) const {
    random_source dice(seed);
    std::vector<setting_pair> open = pairs();
    std::vector<choice_row> out;
    while (out.size() < count) {
      choice_row best = candidate(dice, open);
      for (int tries = 1; tries < 30 && !open.empty(); ++tries) {
        choice_row other = candidate(dice, open);
        if (covered(other, open) > covered(best, open)) {
          best = std::move(other);
        }
      }
      std::erase_if(open, [&](setting_pair const& p) { return has(best, p); });
      out.push_back(std::move(best));
    }
    return out;
  }

  /// Allowed pairs that occur in none of `rows`, as text.
  std::vector<std::string> missing_pairs(std::vector<choice_row> const& rows) const {
    std::vector<std::string> out;
    for (setting_pair const& p : pairs()) {
      bool found = false;
      for (choice_row const& row : rows) {
        found = found || has(row, p);
      }
      if (!found) {
        out.push_back(text(p.first) + " with " + text(p.second));
      }
    }
    return out;
  }

  /// Values that occur in none of `rows`.
  std::vector<std::string> missing_values(std::vector<choice_row> const& rows) const {
    std::vector<std::string> out;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      for (std::uint32_t v = 0; v < axes_[a].values.size(); ++v) {
        bool found = false;
        for (choice_row const& row : rows) {
          found = found || row[a] == v;
        }
        if (!found) {
          out.push_back(text(setting{a, v}));
        }
      }
    }
    return out;
  }

  /// Every pair that may occur.
  std::vector<setting_pair> pairs() const {
    std::vector<setting_pair> out;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      for (std::size_t b = a + 1; b < axes_.size(); ++b) {
        for (std::uint32_t v = 0; v < axes_[a].values.size(); ++v) {
          for (std::uint32_t w = 0; w < axes_[b].values.size(); ++w) {
            if (allowed({a, v}, {b, w})) {
              out.push_back({{a, v}, {b, w}});
            }
          }
        }
      }
    }
    return out;
  }

  bool allowed(setting const& x, setting const& y) const {
    for (auto const& [f, g] : forbidden_) {
      if ((f == x && g == y) || (f == y && g == x)) {
        return false;
      }
    }
    return true;
  }

  std::string text(choice_row const& row) const {
    std::string out;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      out += (a == 0 ? "" : ", ") + text(setting{a, row[a]});
    }
    return out;
  }

 private:
  static constexpr std::uint32_t unset = ~std::uint32_t{0};

  std::string text(setting const& s) const {
    return std::string(axes_[s.axis].name) + "=" + std::string(axes_[s.axis].values[s.value]);
  }
  static bool has(choice_row const& row, setting_pair const& p) {
    return row[p.first.axis] == p.first.value && row[p.second.axis] == p.second.value;
  }
  static std::size_t covered(choice_row const& row, std::vector<setting_pair> const& open) {
    std::size_t n = 0;
    for (setting_pair const& p : open) {
      n += has(row, p) ? 1U : 0U;
    }
    return n;
  }
  bool fits(choice_row const& row, setting const& s) const {
    bool fits = true;
    for (std::size_t a = 0; a < row.size(); ++a) {
      fits = fits && (row[a] == unset || allowed({a, row[a]}, s));
    }
    return fits;
  }

  /// One open pair, then axis by axis in random order the value that covers most; any, if none is
  /// open.
  choice_row candidate(random_source& dice, std::vector<setting_pair> const& open) const {
    choice_row row(axes_.size(), unset);
    if (!open.empty()) {
      auto const& [f, g] = open[dice.between(0, open.size() - 1)];
      row[f.axis] = f.value;
      row[g.axis] = g.value;
    }
    for (std::size_t const a : shuffled(dice)) {
      if (row[a] == unset) {
        row[a] = best_value(dice, row, a, open);
      }
    }
    return row;
  }

  std::vector<std::size_t> shuffled(random_source& dice) const {
    std::vector<std::size_t> order;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      order.push_back(a);
      std::swap(order[a], order[dice.between(0, a)]);
    }
    return order;
  }

  std::uint32_t best_value(random_source& dice,
                           choice_row row,
                           std::size_t a,
                           std::vector<setting_pair> const& open) const {
    auto const n = static_cast<std::uint32_t>(axes_[a].values.size());
    std::uint32_t const start = dice.between32(0, n - 1);
    std::uint32_t best = unset;
    std::size_t most = 0;
    for (std::uint32_t k = 0; k < n; ++k) {
      std::uint32_t const v = (start + k) % n;
      row[a] = unset;
      if (fits(row, {a, v})) {
        row[a] = v;
        std::size_t const now = covered(row, open);
        if (best == unset || now > most) {
          best = v;
          most = now;
        }
      }
    }
    PROTRAIN_EXPECT(best != unset, "the forbidden pairs leave an axis no value");
    return best;
  }

  std::vector<axis> axes_;
  std::vector<setting_pair> forbidden_;
};

}  // namespace protrain::test
