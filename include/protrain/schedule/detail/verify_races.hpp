// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify, third part: what happens before what, and byte by byte that every access happens after
// the accesses it conflicts with.

#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// Vector clocks of a program whose dependencies all point back. O(instructions + dependencies).
class clocks {
 public:
  explicit constexpr clocks(program const& p) : seen_(p.instructions.size(), stamp{}) {
    std::array<std::uint32_t, queue_count> last{};  // by queue: 1 + latest instruction so far
    for (std::uint32_t i = 0; i < seen_.size(); ++i) {
      instruction const& at = p.instructions[i];
      std::uint32_t& previous = last[static_cast<std::size_t>(at.queue)];
      if (previous != 0) {
        merge(seen_[i], seen_[previous - 1]);
      }
      for (std::uint32_t const d : p.dependencies_of(at)) {
        merge(seen_[i], seen_[d]);
      }
      previous = i + 1;
      seen_[i][static_cast<std::size_t>(at.queue)] = previous;
    }
  }

  /// True when instruction `a` of queue `q` is over before `b` starts, in every execution.
  constexpr bool ordered(std::uint32_t a, std::size_t q, std::uint32_t b) const {
    return a < b && seen_[b][q] > a;
  }

 private:
  using stamp = std::array<std::uint32_t, queue_count>;  // by queue: 1 + last that is over, 0: none
  static constexpr void merge(stamp& into, stamp const& from) {
    for (std::size_t q = 0; q < queue_count; ++q) {
      into[q] = from[q] > into[q] ? from[q] : into[q];
    }
  }

  std::vector<stamp> seen_;
};

/// The last accesses to every byte of one space. Segments never overlap and are sorted; a write
/// joins all it covers, so that work is amortised over the accesses that split.
class access_map {
 public:
  static constexpr std::uint32_t nobody = ~std::uint32_t{0};

  constexpr access_map(program const& p, clocks const& order) : p_(p), order_(order) {}

  /// Records that `at` touches [lo, hi). Answers an instruction whose conflicting access isn't
  /// ordered before, or `nobody`.
  constexpr std::uint32_t touch(std::uint64_t lo, std::uint64_t hi, bool write, std::uint32_t at) {
    std::size_t const first = find(lo);
    std::size_t last = first;
    for (; last < sorted_.size() && pool_[sorted_[last]].lo < hi; ++last) {
      if (std::uint32_t const other = conflict(pool_[sorted_[last]], write, at); other != nobody) {
        return other;
      }
    }
    bool const exact =
        last == first + 1 && pool_[sorted_[first]].lo == lo && pool_[sorted_[first]].hi == hi;
    if (exact) {
      mark(pool_[sorted_[first]], write, at);
    } else if (write) {
      overwrite(first, last, lo, hi, at);
    } else {
      read(first, lo, hi, at);
    }
    return nobody;
  }

 private:
  struct segment {
    std::uint64_t lo = 0;
    std::uint64_t hi = 0;
    std::uint32_t writer = 0;                          // 1 + instruction; 0: none
    std::array<std::uint32_t, queue_count> readers{};  // since the write, by queue, likewise
  };

  /// First segment that ends above `lo`.
  constexpr std::size_t find(std::uint64_t lo) const {
    std::size_t first = 0;
    std::size_t count = sorted_.size();
    while (count > 0) {
      std::size_t const half = count / 2;
      bool const below = pool_[sorted_[first + half]].hi <= lo;
      first = below ? first + half + 1 : first;
      count = below ? count - half - 1 : half;
    }
    return first;
  }

  constexpr std::uint32_t conflict(segment const& s, bool write, std::uint32_t at) const {
    if (s.writer != 0) {
      auto const q = static_cast<std::size_t>(p_.instructions[s.writer - 1].queue);
      if (!order_.ordered(s.writer - 1, q, at)) {
        return s.writer - 1;
      }
    }
    for (std::size_t q = 0; write && q < queue_count; ++q) {
      if (s.readers[q] != 0 && !order_.ordered(s.readers[q] - 1, q, at)) {
        return s.readers[q] - 1;
      }
    }
    return nobody;
  }

  constexpr void mark(segment& s, bool write, std::uint32_t at) const {
    if (write) {
      s.writer = at + 1;
      s.readers = {};
    } else {
      s.readers[static_cast<std::size_t>(p_.instructions[at].queue)] = at + 1;
    }
  }

  constexpr void insert(std::size_t position, segment const& s) {
    std::uint32_t slot = 0;
    if (unused_.empty()) {
      slot = static_cast<std::uint32_t>(pool_.size());
      pool_.push_back(s);
    } else {
      slot = unused_.back();
      unused_.pop_back();
      pool_[slot] = s;
    }
    sorted_.insert(sorted_.begin() + static_cast<std::ptrdiff_t>(position), slot);
  }

  constexpr void erase(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      unused_.push_back(sorted_[i]);
    }
    sorted_.erase(sorted_.begin() + static_cast<std::ptrdiff_t>(first),
                  sorted_.begin() + static_cast<std::ptrdiff_t>(last));
  }

  /// Replaces the segments [first, last) inside [lo, hi) by one; what sticks out stays.
  constexpr void overwrite(
      std::size_t first, std::size_t last, std::uint64_t lo, std::uint64_t hi, std::uint32_t at) {
    segment head{};
    segment tail{};
    if (first < last) {
      head = pool_[sorted_[first]];
      tail = pool_[sorted_[last - 1]];
      erase(first, last);
    }
    segment middle{.lo = lo, .hi = hi};
    mark(middle, true, at);
    if (tail.hi > hi) {
      tail.lo = hi;
      insert(first, tail);
    }
    insert(first, middle);
    if (first < last && head.lo < lo) {
      head.hi = lo;
      insert(first, head);
    }
  }

  /// Splits at `lo` and `hi`, fills gaps, and adds the reader to everything between.
  constexpr void read(std::size_t i, std::uint64_t lo, std::uint64_t hi, std::uint32_t at) {
    while (lo < hi) {
      bool const gap = i == sorted_.size() || pool_[sorted_[i]].lo > lo;
      std::uint64_t const next = i == sorted_.size() ? hi : pool_[sorted_[i]].lo;
      if (gap) {
        insert(i, {.lo = lo, .hi = next < hi ? next : hi});
      } else {
        segment const whole = pool_[sorted_[i]];
        std::uint64_t const end = whole.hi < hi ? whole.hi : hi;
        pool_[sorted_[i]].lo = lo;
        pool_[sorted_[i]].hi = end;
        if (whole.hi > end) {
          insert(i + 1, piece(whole, end, whole.hi));
        }
        if (whole.lo < lo) {
          insert(i, piece(whole, whole.lo, lo));
          ++i;
        }
      }
      mark(pool_[sorted_[i]], false, at);
      lo = pool_[sorted_[i]].hi;
      ++i;
    }
  }
  static constexpr segment piece(segment s, std::uint64_t lo, std::uint64_t hi) {
    s.lo = lo;
    s.hi = hi;
    return s;
  }

  program const& p_;
  clocks const& order_;
  std::vector<segment> pool_{};
  std::vector<std::uint32_t> sorted_{};
  std::vector<std::uint32_t> unused_{};
};

/// Every two accesses to a byte of which one writes are ordered, also between allocations that
/// use the byte one after the other, and inside one instruction.
constexpr verdict check_races(program const& p, clocks const& order) {
  std::vector<access_map> maps(space_count, access_map(p, order));
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    for (operand const& o : p.operands_of(p.instructions[i])) {
      allocation const& a = p.allocations[o.allocation.index()];
      std::uint64_t const lo = a.offset + o.offset;
      std::uint32_t const other =
          maps[static_cast<std::size_t>(a.where)].touch(lo, lo + o.bytes, writes(o.mode), i);
      if (other != access_map::nobody) {
        return reject(rejection::race,
                      other == i ? "an instruction's operands overlap"
                                 : "nothing orders this access after an earlier one",
                      i,
                      other);
      }
    }
  }
  return {};
}

}  // namespace protrain::inline v0::schedule::detail
