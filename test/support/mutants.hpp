// SPDX-License-Identifier: Apache-2.0
#pragma once
// Damages programs on purpose, and decides by brute force whether a damage matters: every pair of
// accesses, every path. Shares nothing with verify.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::test {

/// A program whose instructions own their operands and dependencies, so that they can be moved.
struct editable {
  struct node {
    schedule::instruction self{};
    std::vector<schedule::operand> operands{};
    std::vector<std::uint32_t> dependencies{};
  };
  schedule::program frame{};  ///< everything but instructions
  std::vector<node> nodes{};

  explicit editable(schedule::program const& p) : frame(p) {
    for (schedule::instruction const& i : p.instructions) {
      auto const operands = p.operands_of(i);
      auto const dependencies = p.dependencies_of(i);
      nodes.push_back(
          {i, {operands.begin(), operands.end()}, {dependencies.begin(), dependencies.end()}});
    }
  }

  schedule::program program() const {
    schedule::program out = frame;
    out.instructions.clear();
    out.operands.clear();
    out.dependencies.clear();
    for (node const& n : nodes) {
      schedule::instruction i = n.self;
      i.first_operand = static_cast<std::uint32_t>(out.operands.size());
      i.operand_count = static_cast<std::uint32_t>(n.operands.size());
      i.first_dependency = static_cast<std::uint32_t>(out.dependencies.size());
      i.dependency_count = static_cast<std::uint32_t>(n.dependencies.size());
      out.instructions.push_back(i);
      out.operands.insert(out.operands.end(), n.operands.begin(), n.operands.end());
      out.dependencies.insert(out.dependencies.end(), n.dependencies.begin(), n.dependencies.end());
    }
    return out;
  }

  /// Removes instruction `at`; whoever waited for it waits for what it waited for, so that nothing
  /// else changes. Allocations that only it could see go too.
  void erase(std::uint32_t at) {
    std::vector<std::uint32_t> before = nodes[at].dependencies;
    for (std::uint32_t i = at; i-- > 0;) {
      if (nodes[i].self.queue == nodes[at].self.queue) {
        before.push_back(i);
        break;
      }
    }
    queue_id const queue = nodes[at].self.queue;
    bool next_in_queue = true;
    for (std::size_t i = at + 1; i < nodes.size(); ++i) {
      auto& d = nodes[i].dependencies;
      bool const waits = std::erase(d, at) > 0;
      bool const follows = next_in_queue && nodes[i].self.queue == queue;
      next_in_queue = next_in_queue && !follows;
      for (std::uint32_t& k : d) {
        k -= k > at ? 1U : 0U;
      }
      if (waits || follows) {
        d.insert(d.end(), before.begin(), before.end());
      }
    }
    nodes.erase(nodes.begin() + at);
    shorten_allocations(at);
  }

  /// Puts a copy of instruction `at` right after it; whoever waited for it waits for the copy.
  void duplicate(std::uint32_t at) {
    for (node& n : nodes) {
      for (std::uint32_t& k : n.dependencies) {
        k += k >= at ? 1U : 0U;
      }
    }
    nodes.insert(nodes.begin() + at + 1, node(nodes[at]));
    for (schedule::allocation& a : frame.allocations) {
      a.begin += a.begin > at ? 1U : 0U;
      a.end += a.end > at ? 1U : 0U;
    }
  }

  /// Puts a copy of instruction `at` at the end, after everything else.
  void repeat_last(std::uint32_t at) {
    node copy = nodes[at];
    auto const n = static_cast<std::uint32_t>(nodes.size());
    copy.dependencies.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      copy.dependencies.push_back(i);
    }
    for (schedule::allocation& a : frame.allocations) {
      a.end += a.carried ? 1U : 0U;
    }
    nodes.push_back(copy);
  }

  /// Exchanges instructions `at` and `at` + 1. Memory of both is live for both.
  void swap(std::uint32_t at) {
    std::swap(nodes[at], nodes[at + 1]);
    for (node& n : nodes) {
      for (std::uint32_t& k : n.dependencies) {
        k = k == at ? at + 1 : k == at + 1 ? at : k;
      }
    }
  }

  /// Moves instruction `from` to position `to`. Nobody waits for what comes later now; memory is
  /// live at the positions where it was.
  void move(std::uint32_t from, std::uint32_t to) {
    node const moved = nodes[from];
    nodes.erase(nodes.begin() + from);
    nodes.insert(nodes.begin() + to, moved);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      auto& d = nodes[i].dependencies;
      for (std::uint32_t& k : d) {
        k = k == from ? to : from < k && k <= to ? k - 1 : to <= k && k < from ? k + 1 : k;
      }
      std::erase_if(d, [i](std::uint32_t k) { return k >= i; });
    }
  }

  /// Puts a copy of instruction `at` to position `to` behind it, after its original and what is
  /// there before.
  void repeat(std::uint32_t at, std::uint32_t to) {
    for (node& n : nodes) {
      for (std::uint32_t& k : n.dependencies) {
        k += k >= to ? 1U : 0U;
      }
    }
    node copy = nodes[at];
    copy.dependencies.push_back(at);
    copy.dependencies.push_back(to - 1);
    nodes.insert(nodes.begin() + to, copy);
    for (schedule::allocation& a : frame.allocations) {
      a.begin += a.begin >= to ? 1U : 0U;
      a.end += a.end >= to ? 1U : 0U;
    }
  }

 private:
  void shorten_allocations(std::uint32_t at) {
    std::vector<allocation_id> renamed;
    std::vector<schedule::allocation> kept;
    for (schedule::allocation a : frame.allocations) {
      a.begin -= a.begin > at ? 1U : 0U;
      a.end -= a.end > at ? 1U : 0U;
      renamed.push_back(make_id<allocation_id>(kept.size()));
      if (a.begin < a.end) {
        kept.push_back(a);
      }
    }
    frame.allocations = kept;
    for (node& n : nodes) {
      for (schedule::operand& o : n.operands) {
        o.allocation = renamed[o.allocation.index()];
      }
    }
  }
};

/// Positions of all instructions that `wanted` accepts.
template <class F>
std::vector<std::uint32_t> positions(schedule::program const& p, F wanted) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    if (wanted(p.instructions[i])) {
      out.push_back(i);
    }
  }
  return out;
}

/// `over[b]` has bit a set when `a` is over before `b` starts: closure of dependencies and queue
/// order, path by path.
inline std::vector<std::vector<bool>> happens_before(schedule::program const& p) {
  std::size_t const n = p.instructions.size();
  std::vector<std::vector<bool>> over(n, std::vector<bool>(n, false));
  for (std::size_t b = 0; b < n; ++b) {
    auto const add = [&](std::size_t a) {
      over[b][a] = true;
      for (std::size_t k = 0; k < a; ++k) {
        over[b][k] = over[b][k] || over[a][k];
      }
    };
    for (std::size_t a = 0; a < b; ++a) {
      if (p.instructions[a].queue == p.instructions[b].queue) {
        add(a);
      }
    }
    for (std::uint32_t const a : p.dependencies_of(p.instructions[b])) {
      add(a);
    }
  }
  return over;
}

/// True when two operands share a byte and one of them writes.
inline bool conflict(schedule::program const& p,
                     schedule::operand const& a,
                     schedule::operand const& b) {
  schedule::allocation const& x = p.allocations[a.allocation.index()];
  schedule::allocation const& y = p.allocations[b.allocation.index()];
  std::uint64_t const at = x.offset + a.offset;
  std::uint64_t const bt = y.offset + b.offset;
  return x.where == y.where && at < bt + b.bytes && bt < at + a.bytes &&
         (writes(a.mode) || writes(b.mode));
}

inline bool conflict(schedule::program const& p,
                     schedule::instruction const& a,
                     schedule::instruction const& b) {
  auto const bs = p.operands_of(b);
  auto const as = p.operands_of(a);
  return std::any_of(as.begin(), as.end(), [&](schedule::operand const& x) {
    return std::any_of(
        bs.begin(), bs.end(), [&](schedule::operand const& y) { return conflict(p, x, y); });
  });
}

/// True when some pair of conflicting accesses has no order.
inline bool races(schedule::program const& p) {
  auto const over = happens_before(p);
  for (std::size_t b = 0; b < p.instructions.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (!over[b][a] && conflict(p, p.instructions[a], p.instructions[b])) {
        return true;
      }
    }
  }
  return false;
}

/// True when two allocations that are live at one position share a byte.
inline bool overlaps(schedule::program const& p) {
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      schedule::allocation const& a = p.allocations[i];
      schedule::allocation const& b = p.allocations[k];
      if (a.where == b.where && a.begin < b.end && b.begin < a.end &&
          a.offset < b.offset + granules(b.bytes) && b.offset < a.offset + granules(a.bytes)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace protrain::test
