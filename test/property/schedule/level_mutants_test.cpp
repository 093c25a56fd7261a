// SPDX-License-Identifier: Apache-2.0
// Programs whose save levels were damaged: rebuilds that are missing, late, of another level or of
// other values, and memory that goes too early.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace level_mutants_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::rejection;
using schedule::role;

constexpr std::uint64_t first_seed = 90'000;

/// A program, one of its instructions that has a save level, and a copy to be damaged.
struct patient {
  test::random_case& job;
  test::random_source& dice;
  test::editable& e;
  std::uint32_t at = 0;

  schedule::instruction& hit() const { return e.nodes[at].self; }
  std::size_t levels() const { return job.facts.shape(hit().block).levels.size(); }
  /// Of the first operand of that role; null without one.
  schedule::allocation* allocation_of(role what) const {
    for (schedule::operand const& o : e.nodes[at].operands) {
      if (o.what == what) {
        return &e.frame.allocations[o.allocation.index()];
      }
    }
    return nullptr;
  }
};

/// `damage(patient)` at an instruction of `op` in each of many programs, which must then be refused
/// for one of `reasons`; false: there is nothing to damage. `prepare(case)` changes the job first.
template <class Prepare, class Damage>
void run(char const* kind,
         opcode op,
         std::vector<rejection> const& reasons,
         Prepare prepare,
         Damage damage) {
  std::uint64_t refused = 0;
  std::uint64_t const wanted = test::scaled(30);
  auto const enough = [&](std::uint64_t n) {
    return n >= test::scaled(1500) && (refused >= wanted || n >= 1500);
  };
  for (std::uint64_t seed = first_seed; !enough(seed - first_seed); ++seed) {
    CAPTURE(seed);
    test::random_source dice(~seed);
    test::random_case c = test::make_case(seed);
    prepare(c);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs);
    REQUIRE(p.has_value());
    auto const at = test::positions(
        *p, [&](schedule::instruction const& i) { return i.op == op && i.level > 0; });
    if (at.empty()) {
      continue;
    }
    test::editable e(*p);
    if (!damage(patient{c, dice, e, at[dice.between(0, at.size() - 1)]})) {
      continue;
    }
    schedule::verdict const v = schedule::verify(e.program(), c.facts, c.layout);
    CAPTURE(v.what);
    CAPTURE(schedule::name_of(v.reason));
    CHECK(std::ranges::find(reasons, v.reason) != reasons.end());
    refused += v.ok ? 0U : 1U;
  }
  std::printf("%-28s refused %5llu\n", kind, static_cast<unsigned long long>(refused));
  CHECK(refused >= wanted);
}
template <class Damage>
void run(char const* kind, opcode op, std::vector<rejection> const& reasons, Damage damage) {
  run(kind, op, reasons, [](test::random_case&) {}, damage);
}

TEST_CASE("a missing rebuild is missed") {
  run("skipped rebuild", opcode::rebuild, {rejection::missing_input}, [](patient const& p) {
    p.e.erase(p.at);
    return true;
  });
}

TEST_CASE("another save level is refused, wherever it is named") {
  for (opcode const op : {opcode::forward, opcode::rebuild, opcode::backward}) {
    run("another level", op, {rejection::malformed}, [](patient const& p) {
      bool const deeper = p.hit().level < p.levels() && p.dice.chance(50);
      p.hit().level += deeper ? 1U : ~std::uint32_t{0};
      return true;
    });
    run("no such level", op, {rejection::malformed}, [](patient const& p) {
      p.hit().level = static_cast<std::uint32_t>(p.levels()) + 1;
      return true;
    });
  }
}

TEST_CASE("levels of equal sizes are told apart by what they hold") {
  auto const alike = [](test::random_case& c) {
    for (trace::block_shape& s : c.facts.shapes) {
      for (trace::save_level& level : s.levels) {
        level = s.levels.front();
      }
    }
  };
  for (opcode const op : {opcode::forward, opcode::rebuild, opcode::backward}) {
    run("another level, same sizes", op, {rejection::missing_input}, alike, [](patient const& p) {
      bool const several = p.levels() > 1;
      p.hit().level = p.hit().level == 1 ? 2 : p.hit().level - 1;
      return several;
    });
  }
}

TEST_CASE("a rebuild from values of another version is refused") {
  run("other version", opcode::rebuild, {rejection::wrong_version}, [](patient const& p) {
    ++p.hit().version;
    return true;
  });
}

TEST_CASE("a rebuild of another micro-batch is refused") {
  run("other micro-batch",
      opcode::rebuild,
      {rejection::missing_pass, rejection::missing_input},
      [](patient const& p) {
        std::uint32_t const all = p.e.frame.micro_batches;
        p.hit().micro_batch = (p.hit().micro_batch + 1) % all;
        return all > 1;
      });
}

TEST_CASE("a rebuild behind its backward is refused") {
  run("late rebuild",
      opcode::rebuild,
      {rejection::missing_input, rejection::race},
      [](patient const& p) {
        std::uint32_t end = p.at + 1;
        while (p.e.nodes[end].self.op != opcode::backward) {
          ++end;
        }
        for (std::uint32_t i = p.at; i < end; ++i) {
          p.e.swap(i);
          std::erase_if(p.e.nodes[i].dependencies, [&](std::uint32_t d) { return d >= i; });
        }
        for (schedule::allocation& a : p.e.frame.allocations) {  // live for both
          a.begin = a.begin > p.at && a.begin <= end ? p.at : a.begin;
          a.end = a.end > p.at && a.end <= end ? end + 1 : a.end;
        }
        return !test::overlaps(p.e.program());
      });
}

TEST_CASE("what is kept and what was rebuilt must stay until backward") {
  auto const early = [](role what) {
    return [what](patient const& p) {
      schedule::allocation* const a = p.allocation_of(what);
      if (a != nullptr) {
        a->end = p.at + 1;
      }
      return a != nullptr;
    };
  };
  run("kept, freed early", opcode::forward, {rejection::dead_memory}, early(role::saved));
  run("rebuilt, freed early", opcode::rebuild, {rejection::dead_memory}, early(role::rebuilt));
}

TEST_CASE("backward doesn't take what forward wrote and dropped for what was rebuilt") {
  // The rebuild's memory begins before anybody wrote it: what lies there is somebody else's.
  run("rebuild writes elsewhere",
      opcode::rebuild,
      {rejection::missing_input, rejection::malformed, rejection::overlap, rejection::race},
      [](patient const& p) {
        schedule::allocation* const a = p.allocation_of(role::rebuilt);
        if (a == nullptr) {
          return false;
        }
        schedule::allocation copy = *a;  // the rebuild gets memory of its own, backward the old
        copy.end = p.at + 1;
        for (schedule::allocation const& b : p.e.frame.allocations) {
          copy.offset = std::max(copy.offset, b.offset + granules(b.bytes));
        }
        p.e.frame.allocations.push_back(copy);
        for (schedule::operand& o : p.e.nodes[p.at].operands) {
          if (o.what == role::rebuilt) {
            o.allocation = make_id<allocation_id>(p.e.frame.allocations.size() - 1);
          }
        }
        return true;
      });
}

TEST_CASE("a level on an instruction that has none is refused") {
  std::uint64_t refused = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(300); ++seed) {
    test::random_source dice(seed);
    test::random_case const c = test::make_case(seed);
    auto p = schedule::compile(c.facts, c.layout, c.knobs);
    REQUIRE(p.has_value());
    schedule::instruction& i = p->instructions[dice.between(0, p->instructions.size() - 1)];
    if (i.level == 0 && i.op != opcode::forward && i.op != opcode::backward) {
      i.level = 1;
      CHECK(schedule::verify(*p, c.facts, c.layout).reason == rejection::malformed);
      ++refused;
    }
  }
  CHECK(refused > test::scaled(300) / 4);
}

}  // namespace

}  // namespace level_mutants_test
