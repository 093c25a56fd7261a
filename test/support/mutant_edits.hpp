// SPDX-License-Identifier: Apache-2.0
#pragma once
// One edit of one program of a job: where it goes is drawn here, what it does is a kind's.

#include "protrain/core/ids.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/mutant_jobs.hpp"
#include "test/support/mutant_run.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace protrain::test {

/// A mutant in the making.
struct draft {
  mutant_job const& job;
  random_source& dice;
  schedule::opcode turn{};  ///< for kinds that go through all opcodes
  std::size_t segment = 0;  ///< whose program is damaged
  schedule::program p{};    ///< the damaged program
  bool hit = false;         ///< an instruction was chosen
  schedule::opcode op{};    ///< its opcode
  std::string where{};      ///< for people
  std::uint32_t rank = mutant::every_rank;

  schedule::program const& sound() const { return job.segments[segment]; }
  mutant result() const {
    mutant m{.programs = job.segments, .rank = rank};
    m.programs[segment] = p;
    return m;
  }
};

/// Anything in [0, count) but `now`; `now` if there is nothing else.
inline std::uint64_t another(random_source& dice, std::uint64_t now, std::uint64_t count) {
  return count < 2 || now >= count ? now : (now + dice.between(1, count - 1)) % count;
}
template <class Id>
Id another_id(random_source& dice, Id now, std::size_t count) {
  return now.index() < count ? make_id<Id>(another(dice, now.index(), count)) : now;
}
template <class Enum>
Enum another_of(random_source& dice, Enum now, std::size_t count) {
  return static_cast<Enum>(another(dice, static_cast<std::uint64_t>(now), count));
}

inline constexpr auto anything = [](schedule::instruction const&) { return true; };
inline auto is(schedule::opcode op) {
  return [op](schedule::instruction const& i) { return i.op == op; };
}

inline void mark(draft& d, std::uint32_t at) {
  d.hit = true;
  d.op = d.sound().instructions[at].op;
  d.where = "instruction " + std::to_string(at) + " (" + std::string(name_of(d.op)) + ")";
}

/// Changes one instruction of any segment that `wanted(instruction)` accepts:
/// `change(draft, editable, position)` answers false where there is nothing to change.
template <class Wanted, class Change>
bool on_instruction(draft& d, Wanted const& wanted, Change const& change) {
  std::vector<std::pair<std::size_t, std::uint32_t>> found;
  for (std::size_t s = 0; s < d.job.segments.size(); ++s) {
    for (std::uint32_t const at : positions(d.job.segments[s], wanted)) {
      found.emplace_back(s, at);
    }
  }
  if (found.empty()) {
    return false;
  }
  auto const [segment, at] = found[d.dice.between(0, found.size() - 1)];
  d.segment = segment;
  mark(d, at);
  editable e(d.sound());
  if (!change(d, e, at)) {
    return false;
  }
  d.p = e.program();
  return true;
}

/// Changes one operand that `wanted(operand)` accepts: `change(draft, editable, position, operand)`.
template <class Wanted, class Change>
bool on_operand(draft& d, Wanted const& wanted, Change const& change) {
  std::vector<std::size_t> all;
  std::vector<std::pair<std::uint32_t, std::size_t>> found;
  for (std::size_t s = 0; s < d.job.segments.size(); ++s) {
    all.push_back(s);
  }
  for (; !all.empty() && found.empty();) {
    std::size_t const k = d.dice.between(0, all.size() - 1);
    d.segment = all[k];
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(k));
    for (std::uint32_t i = 0; i < d.sound().instructions.size(); ++i) {
      auto const operands = d.sound().operands_of(d.sound().instructions[i]);
      for (std::size_t o = 0; o < operands.size(); ++o) {
        if (wanted(operands[o])) {
          found.emplace_back(i, o);
        }
      }
    }
  }
  if (found.empty()) {
    return false;
  }
  auto const [at, nth] = found[d.dice.between(0, found.size() - 1)];
  mark(d, at);
  d.where += ", operand " + std::to_string(nth);
  editable e(d.sound());
  if (!change(d, e, at, e.nodes[at].operands[nth])) {
    return false;
  }
  d.p = e.program();
  return true;
}
inline constexpr auto any_operand = [](schedule::operand const&) { return true; };

/// Changes one allocation of the draft's segment that `wanted(allocation)` accepts:
/// `change(draft, index)` edits `d.p`.
template <class Wanted, class Change>
bool in_segment(draft& d, Wanted const& wanted, Change const& change) {
  d.p = d.sound();
  std::vector<std::size_t> found;
  for (std::size_t a = 0; a < d.p.allocations.size(); ++a) {
    if (wanted(d.p.allocations[a])) {
      found.push_back(a);
    }
  }
  if (found.empty()) {
    return false;
  }
  std::size_t const at = found[d.dice.between(0, found.size() - 1)];
  d.where = "allocation " + std::to_string(at);
  return change(d, at);
}
/// The same of any segment, or mostly of the first, where the engine looks homes up.
template <class Wanted, class Change>
bool on_allocation(draft& d, Wanted const& wanted, Change const& change) {
  d.segment = d.dice.between(0, d.job.segments.size() - 1);
  return in_segment(d, wanted, change);
}
template <class Wanted, class Change>
bool on_first_segment(draft& d, Wanted const& wanted, Change const& change) {
  d.segment = d.dice.chance(80) ? 0 : d.dice.between(0, d.job.segments.size() - 1);
  return in_segment(d, wanted, change);
}
inline constexpr auto any_memory = [](schedule::allocation const&) { return true; };
inline constexpr auto own_memory = [](schedule::allocation const& a) { return !a.carried; };
/// Changes what a program says of itself, mostly of one that trains: `change(draft, program)`.
template <class Change>
bool on_head(draft& d, Change const& change) {
  bool const any = d.dice.chance(20);
  do {
    d.segment = d.dice.between(0, d.job.segments.size() - 1);
  } while (!any && !schedule::trains(d.sound().part));
  d.p = d.sound();
  d.where = "the head";
  return change(d, d.p);
}

// --- edits that more than one kind uses ----------------------------------------------------------

inline constexpr auto erased = [](draft&, editable& e, std::uint32_t at) {
  e.erase(at);
  return !e.nodes.empty();
};
inline constexpr auto doubled = [](draft&, editable& e, std::uint32_t at) {
  e.duplicate(at);
  return true;
};
inline constexpr auto repeated = [](draft& d, editable& e, std::uint32_t at) {
  auto const last = static_cast<std::uint32_t>(e.nodes.size());
  e.repeat(at, std::min(last, at + d.dice.between32(2, 20)));
  return true;
};
inline constexpr auto moved = [](draft& d, editable& e, std::uint32_t at) {
  auto const last = static_cast<std::uint32_t>(e.nodes.size() - 1);
  std::uint32_t const by = d.dice.between32(1, 20);
  e.move(at, d.dice.chance(50) ? at - std::min(at, by) : std::min(last, at + by));
  return true;
};

/// Neighbours, with what they wait for; where one waited for the other, the other does now.
inline constexpr auto swapped = [](draft&, editable& e, std::uint32_t at) {
  if (at + 1 == e.nodes.size()) {
    return false;
  }
  e.swap(at);
  if (std::erase(e.nodes[at].dependencies, at + 1) > 0) {
    e.nodes[at + 1].dependencies.push_back(at);
  }
  return true;
};

/// An instruction and the next of its queue change places; what is waited for there stays.
inline constexpr auto exchanged = [](draft&, editable& e, std::uint32_t at) {
  for (std::size_t next = at + 1; next < e.nodes.size(); ++next) {
    if (e.nodes[next].self.queue == e.nodes[at].self.queue) {
      std::swap(e.nodes[next].self, e.nodes[at].self);
      std::swap(e.nodes[next].operands, e.nodes[at].operands);
      return true;
    }
  }
  return false;
};

/// Puts `a` among the allocations so that they begin in order.
inline void insert_allocation(schedule::program& p, schedule::allocation const& a) {
  std::size_t at = 0;
  while (at < p.allocations.size() && p.allocations[at].begin <= a.begin) {
    ++at;
  }
  p.allocations.insert(p.allocations.begin() + static_cast<std::ptrdiff_t>(at), a);
  for (schedule::operand& o : p.operands) {
    o.allocation.value += o.allocation.index() >= at ? 1U : 0U;
  }
}

/// Moves allocation `from` to the place of `to` in the table.
inline void move_allocation(schedule::program& p, std::size_t from, std::size_t to) {
  schedule::allocation const a = p.allocations[from];
  p.allocations.erase(p.allocations.begin() + static_cast<std::ptrdiff_t>(from));
  p.allocations.insert(p.allocations.begin() + static_cast<std::ptrdiff_t>(to), a);
  for (schedule::operand& o : p.operands) {
    std::size_t const k = o.allocation.index();
    std::size_t const now = k == from             ? to
                            : from < k && k <= to ? k - 1
                            : to <= k && k < from ? k + 1
                                                  : k;
    o.allocation = make_id<allocation_id>(now);
  }
}

}  // namespace protrain::test
