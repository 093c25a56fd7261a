// SPDX-License-Identifier: Apache-2.0
// Every kind of single edit, at random, judged by verify and executed: what does harm under some
// order is refused. What is refused without doing harm is counted and explained.
//
// What verify accepts is executed in three orders. What it refuses is executed in one, as one harm
// is enough; so of those counted as refused and harmless some do harm in another order: 82 of
// 3,109, for twice the time. The long run tries all three.

#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "test/support/mutant_edits.hpp"
#include "test/support/mutant_jobs.hpp"
#include "test/support/mutant_kinds.hpp"
#include "test/support/mutant_operands.hpp"
#include "test/support/mutant_ranks.hpp"
#include "test/support/mutant_run.hpp"
#include "test/support/mutant_tables.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace effective_mutants_test {

namespace {

using namespace protrain;
using test::consequence;

constexpr std::uint64_t first_seed = 95'000;

/// What the long run sets.
char const* long_run() { return std::getenv("PROTRAIN_TEST_MUTANTS"); }

/// Effective mutants of each kind: 100, or what the environment says.
std::uint64_t wanted() {
  char const* const more = long_run();
  return test::scaled(more == nullptr ? 100 : std::strtoull(more, nullptr, 10));
}

test::mutant_pool& pool() {
  static test::mutant_pool all(first_seed, 24 + wanted() / 8, 8 + wanted() / 24);
  return all;
}

/// What became of the mutants of one kind.
struct tally {
  std::uint64_t drawn = 0;
  std::uint64_t killed = 0;  ///< effective and refused
  std::uint64_t escaped = 0;
  std::uint64_t accepted = 0;  ///< harmless
  std::array<std::uint64_t, test::consequence_count> by_effect{};
  std::map<std::string, std::uint64_t> harmless{};           ///< refused, by explanation
  std::array<std::uint64_t, schedule::opcode_count> dull{};  ///< harmless ones in a row

  void print(test::mutant_kind const& kind) const {
    std::uint64_t spared = 0;
    for (auto const& [why, n] : harmless) {
      spared += n;
    }
    std::printf("%-42s %5llu killed (", kind.name, static_cast<unsigned long long>(killed));
    for (std::size_t k = 1; k < by_effect.size(); ++k) {
      if (by_effect[k] > 0) {
        std::printf("%s %llu ",
                    std::string(test::name_of(static_cast<consequence>(k))).c_str(),
                    static_cast<unsigned long long>(by_effect[k]));
      }
    }
    std::printf("), harmless: %llu accepted, %llu refused\n",
                static_cast<unsigned long long>(accepted),
                static_cast<unsigned long long>(spared));
    if (spared > 0) {
      std::printf("    harmless: %s\n", kind.spared == nullptr ? "nobody knows why" : kind.spared);
    }
    for (auto const& [why, n] : harmless) {
      std::printf("    %5llu %s\n", static_cast<unsigned long long>(n), why.c_str());
    }
  }
};

std::string explanation(schedule::verdict const& v) {
  return std::string(name_of(v.reason)) + ": " + v.what;
}

/// Everything about a mutant that verify should have refused.
void print_escaped(test::mutant_kind const& kind, test::draft const& d, test::effect const& e) {
  schedule::program const& p = d.p;
  std::printf(
      "accepted, yet it does harm: %s\n  job seed %llu, %llu ranks, segment %s, rank %d, %s\n",
      kind.name,
      static_cast<unsigned long long>(d.job.seed),
      static_cast<unsigned long long>(d.job.ranks()),
      std::string(name_of(p.part)).c_str(),
      static_cast<int>(d.rank),
      d.where.c_str());
  std::printf("  %s: %s\n", std::string(test::name_of(e.what)).c_str(), e.text.c_str());
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    schedule::instruction const& at = p.instructions[i];
    std::printf(
        "  %zu %s on %s, micro-batch %u, block %d, chunk %d, span %d, version %u, amount %llu",
        i,
        std::string(name_of(at.op)).c_str(),
        std::string(name_of(at.queue)).c_str(),
        at.micro_batch,
        static_cast<int>(at.block.value),
        static_cast<int>(at.chunk.value),
        static_cast<int>(at.span.value),
        at.version,
        static_cast<unsigned long long>(at.amount));
    for (std::uint32_t const k : p.dependencies_of(at)) {
      std::printf(" <%u", k);
    }
    for (schedule::operand const& o : p.operands_of(at)) {
      std::printf(" (%d %d of %u at %llu+%llu*r, %llu)",
                  static_cast<int>(o.what),
                  static_cast<int>(o.mode),
                  o.allocation.value,
                  static_cast<unsigned long long>(o.offset),
                  static_cast<unsigned long long>(o.stride),
                  static_cast<unsigned long long>(o.bytes));
    }
    std::printf("\n");
  }
}

void count(test::mutant_kind const& kind, test::draft const& d, tally& sum) {
  test::mutant const m = d.result();
  schedule::verdict const v = test::verdict_on(d.job, m);
  test::effect const e = test::effect_of(d.job, m, v.ok || long_run() != nullptr);
  auto const op = static_cast<std::size_t>(d.op);
  ++sum.drawn;
  ++sum.by_effect[static_cast<std::size_t>(e.what)];
  bool const harm = e.what != consequence::none;
  sum.dull[op] = harm ? 0 : sum.dull[op] + 1;
  if (harm && v.ok) {
    ++sum.escaped;
    print_escaped(kind, d, e);
  } else if (harm) {
    ++sum.killed;
  } else if (v.ok) {
    ++sum.accepted;
  } else {
    ++sum.harmless[explanation(v)];
  }
}

/// One mutant of job `j`, if that has something to damage.
bool damage(test::mutant_kind const& kind,
            test::mutant_job const& j,
            schedule::opcode turn,
            test::random_source& dice,
            tally& sum) {
  test::draft d{.job = j, .dice = dice, .turn = turn};
  bool const damaged = kind.edit(d) && d.p != d.sound();
  if (damaged) {
    count(kind, d, sum);
  }
  return damaged;
}

/// Mutant number `n` of a kind: of a job that is drawn a few times, then of any that there is.
bool draw(test::mutant_kind const& kind, std::uint64_t n, test::random_source& dice, tally& sum) {
  auto const turn = static_cast<schedule::opcode>(n % schedule::opcode_count);
  if (kind.harm == test::reach::each && sum.dull[n % schedule::opcode_count] > 5) {
    return true;  // harmless every time so far
  }
  for (int tries = 0; tries < 50; ++tries) {
    if (damage(kind, pool().draw(dice, kind.several_ranks), turn, dice, sum)) {
      return true;
    }
  }
  for (std::size_t k = pool().size(); k-- > 0;) {
    test::mutant_job const& j = pool().at(k);
    if ((j.ranks() > 1 || !kind.several_ranks) && damage(kind, j, turn, dice, sum)) {
      return true;
    }
  }
  return false;
}

/// Mutants of one kind until enough of them were effective; of each opcode where they are by
/// opcode.
void hunt(test::mutant_kind const& kind) {
  bool const labels = kind.harm == test::reach::labels;
  std::uint64_t const goal = labels ? 0 : wanted();
  std::uint64_t const least = labels                           ? wanted() / 5 + 1
                              : kind.harm == test::reach::each ? 2 * schedule::opcode_count
                                                               : 1;
  test::random_source dice(first_seed + hash_name(kind.name));
  tally sum;
  bool drawn = true;
  for (std::uint64_t n = 0; drawn && n < 40 * wanted() && (sum.killed < goal || n < least); ++n) {
    drawn = draw(kind, n, dice, sum);
  }
  sum.print(kind);
  CAPTURE(std::string(kind.name));
  CHECK(drawn);
  CHECK(sum.escaped == 0);
  CHECK(sum.killed >= goal);
  CHECK((sum.harmless.empty() || kind.spared != nullptr));
  CHECK((!labels || sum.killed == 0));
}

void hunt_all(std::vector<test::mutant_kind> const& kinds) {
  for (test::mutant_kind const& kind : kinds) {
    hunt(kind);
  }
}

TEST_CASE("the jobs themselves do no harm in any order") {
  test::random_source dice(1);
  for (bool const several : {false, true}) {
    test::mutant_job const& j = pool().draw(dice, several);
    test::effect const e = test::effect_of(j, {.programs = j.segments}, true);
    CHECK(e.text == "");
    CHECK(e.what == consequence::none);
    CHECK(test::verdict_on(j, {.programs = j.segments}).ok);
  }
}

TEST_CASE("order") { hunt_all(test::order_kinds()); }
TEST_CASE("instructions too few, too many, or others") { hunt_all(test::presence_kinds()); }
TEST_CASE("what an instruction says of itself") { hunt_all(test::field_kinds()); }
TEST_CASE("what an instruction works on") { hunt_all(test::operand_kinds()); }
TEST_CASE("memory") { hunt_all(test::memory_kinds()); }
TEST_CASE("what a program says of itself") { hunt_all(test::head_kinds()); }
TEST_CASE("one rank otherwise than the others") { hunt_all(test::rank_kinds()); }

/// Whether some mutant that lacks an instruction of this opcode does harm and is refused.
bool is_missed(schedule::opcode op, test::random_source& dice) {
  test::mutant_kind const kind{"drop", "", [](test::draft& d) {
                                 return test::on_instruction(d, test::is(d.turn), test::erased);
                               }};
  tally sum;
  for (std::uint64_t n = 0; n < 20 && sum.killed == 0; ++n) {
    for (std::size_t k = 0; k < pool().size() && sum.killed == 0; ++k) {
      damage(kind, pool().at(k), op, dice, sum);
    }
  }
  return sum.killed > 0 && sum.escaped == 0;
}

TEST_CASE("an instruction of any opcode is missed") {
  test::random_source dice(first_seed);
  for (std::size_t op = 0; op < schedule::opcode_count; ++op) {
    std::string const name(name_of(static_cast<schedule::opcode>(op)));
    CAPTURE(name);
    CHECK(is_missed(static_cast<schedule::opcode>(op), dice));
  }
}

}  // namespace

}  // namespace effective_mutants_test
