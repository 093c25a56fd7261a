// SPDX-License-Identifier: Apache-2.0
// Damaged programs are refused for the right reason. A damaged program that is accepted must be
// harmless by brute force.

#include "test/support/mutants.hpp"

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace mutants_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::rejection;

constexpr std::uint64_t first_seed = 50'000;

/// One program, and where the dice for its damage come from.
struct subject {
  test::random_case job{};
  schedule::program p{};
  test::random_source dice{0};

  schedule::verdict verify(schedule::program const& q) const {
    return schedule::verify(q, job.facts, job.layout);
  }
  /// One of `from`, which isn't empty.
  std::uint32_t pick(std::vector<std::uint32_t> const& from) {
    return from[dice.between(0, from.size() - 1)];
  }
};

subject make_subject(std::uint64_t seed) {
  subject s{.job = test::make_case(seed), .dice = test::random_source(~seed)};
  auto p = schedule::compile(s.job.facts, s.job.layout, s.job.knobs);
  REQUIRE(p.has_value());
  s.p = *p;
  REQUIRE(s.verify(s.p).ok);
  return s;
}

/// How often mutants of one kind were refused, by reason, and how many were accepted.
class tally {
 public:
  explicit tally(char const* kind) : kind_(kind) {}
  void add(schedule::verdict const& v) { ++by_[static_cast<std::size_t>(v.reason)]; }
  std::uint64_t of(rejection r) const { return by_[static_cast<std::size_t>(r)]; }
  std::uint64_t accepted() const { return of(rejection::none); }
  std::uint64_t rejected() const {
    std::uint64_t sum = 0;
    for (std::uint64_t const n : by_) {
      sum += n;
    }
    return sum - accepted();
  }
  void print() const {
    std::printf("%-24s refused %6llu, harmless %5llu:",
                kind_,
                static_cast<unsigned long long>(rejected()),
                static_cast<unsigned long long>(accepted()));
    for (std::size_t r = 1; r < by_.size(); ++r) {
      if (by_[r] > 0) {
        std::printf(" %s %llu",
                    std::string(schedule::name_of(static_cast<rejection>(r))).c_str(),
                    static_cast<unsigned long long>(by_[r]));
      }
    }
    std::printf("\n");
  }

 private:
  char const* kind_;
  std::array<std::uint64_t, schedule::rejection_count> by_{};
};

/// Runs `damage(subject, tally)` on `cases` programs; prints what came of it.
template <class F>
tally run(char const* kind, std::uint64_t cases, F damage) {
  tally t(kind);
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    damage(s, t);
  }
  t.print();
  return t;
}

/// Kinds whose every mutant must be refused for one reason: change one instruction of `op`.
template <class F>
tally run_on(
    char const* kind, rejection expected, opcode op, F change, std::uint64_t at_least = 100) {
  tally const t = run(kind, test::scaled(600), [&](subject& s, tally& sum) {
    auto const at =
        test::positions(s.p, [&](schedule::instruction const& i) { return i.op == op; });
    if (at.empty()) {
      return;
    }
    test::editable e(s.p);
    change(e, s.pick(at));
    schedule::verdict const v = s.verify(e.program());
    CAPTURE(v.what);
    CHECK(v.reason == expected);
    sum.add(v);
  });
  CHECK(t.rejected() >= test::scaled(at_least));
  CHECK(t.accepted() == 0);
  return t;
}

TEST_CASE("a dropped dependency is a race, or was implied") {
  std::uint64_t const cases = test::scaled(2000);
  tally const t = run("dropped dependency", cases, [](subject& s, tally& sum) {
    auto const at =
        test::positions(s.p, [](schedule::instruction const& i) { return i.dependency_count > 0; });
    if (at.empty()) {
      return;
    }
    test::editable e(s.p);
    auto& d = e.nodes[s.pick(at)].dependencies;
    d.erase(d.begin() + static_cast<std::ptrdiff_t>(s.dice.between(0, d.size() - 1)));
    schedule::program const q = e.program();
    schedule::verdict const v = s.verify(q);
    CAPTURE(v.what);
    CHECK((v.ok ? rejection::race : v.reason) == rejection::race);
    CHECK(v.ok != test::races(q));
    sum.add(v);
  });
  CHECK(t.of(rejection::race) >= test::scaled(100));
}

TEST_CASE("a slot reused while it is live overlaps") {
  tally const t = run("slot of a live one", test::scaled(2000), [](subject& s, tally& sum) {
    schedule::program q = s.p;
    auto& a = q.allocations[s.dice.between(0, q.allocations.size() - 1)];
    auto const& b = q.allocations[s.dice.between(0, q.allocations.size() - 1)];
    bool const together = a.where == b.where && a.begin < b.end && b.begin < a.end;
    if (!together || a.offset == b.offset) {
      return;
    }
    a.offset = b.offset;
    schedule::verdict const v = s.verify(q);
    CHECK(v.reason == rejection::overlap);
    CHECK(test::overlaps(q));
    sum.add(v);
  });
  CHECK(t.of(rejection::overlap) >= test::scaled(100));
}

TEST_CASE("a slot reused too early is a race, unless its users are ordered anyway") {
  tally const t = run("slot of an earlier one", test::scaled(5000), [](subject& s, tally& sum) {
    for (int tries = 0; tries < 40; ++tries) {
      schedule::program q = s.p;
      auto& a = q.allocations[s.dice.between(0, q.allocations.size() - 1)];
      auto const& b = q.allocations[s.dice.between(0, q.allocations.size() - 1)];
      if (a.where != b.where || b.end > a.begin || a.offset == b.offset) {
        continue;
      }
      a.offset = b.offset;
      if (test::overlaps(q)) {
        continue;
      }
      schedule::verdict const v = s.verify(q);
      CAPTURE(v.what);
      CHECK((v.ok ? rejection::race : v.reason) == rejection::race);
      CHECK(v.ok != test::races(q));
      sum.add(v);
      return;
    }
  });
  CHECK(t.of(rejection::race) >= test::scaled(100));
}

TEST_CASE("memory that isn't given back leaks") {
  tally const t = run("leak", test::scaled(1000), [](subject& s, tally& sum) {
    std::vector<std::uint32_t> given;
    for (std::uint32_t i = 0; i < s.p.allocations.size(); ++i) {
      if (!s.p.allocations[i].carried) {
        given.push_back(i);
      }
    }
    schedule::program q = s.p;
    q.allocations[s.pick(given)].end = static_cast<std::uint32_t>(q.instructions.size()) + 1;
    schedule::verdict const v = s.verify(q);
    CHECK(v.reason == rejection::leak);
    sum.add(v);
  });
  CHECK(t.of(rejection::leak) >= test::scaled(100));
}

TEST_CASE("memory listed in another order than it is taken is refused") {
  tally const t = run("allocations exchanged", test::scaled(1000), [](subject& s, tally& sum) {
    std::vector<std::uint32_t> later;  // those that begin after their neighbour
    for (std::uint32_t i = 1; i < s.p.allocations.size(); ++i) {
      if (s.p.allocations[i - 1].begin < s.p.allocations[i].begin) {
        later.push_back(i);
      }
    }
    schedule::program q = s.p;
    std::uint32_t const at = s.pick(later);
    std::swap(q.allocations[at - 1], q.allocations[at]);
    for (schedule::operand& o : q.operands) {
      std::uint32_t& k = o.allocation.value;
      k = k == at ? at - 1 : k + 1 == at ? at : k;
    }
    schedule::verdict const v = s.verify(q);
    CHECK(v.reason == rejection::malformed);
    sum.add(v);
  });
  CHECK(t.rejected() >= test::scaled(100));
}

TEST_CASE("skipped steps of a contribution are named") {
  auto const skip = [](test::editable& e, std::uint32_t at) { e.erase(at); };
  run_on("skipped reduce", rejection::missing_reduce, opcode::reduce, skip);
  run_on("skipped accumulate", rejection::missing_accumulate, opcode::accumulate, skip);
  run_on("skipped update", rejection::missing_update, opcode::update, skip);
  run_on("skipped norm_partial", rejection::norm, opcode::norm_partial, skip);
  run_on("skipped loss_read", rejection::missing_result, opcode::loss_read, skip);
}

TEST_CASE("doubled steps of a contribution are named") {
  auto const twice = [](test::editable& e, std::uint32_t at) { e.duplicate(at); };
  run_on("double reduce", rejection::double_reduce, opcode::reduce, twice);
  run_on("double accumulate", rejection::double_accumulate, opcode::accumulate, twice);
  run_on("double update", rejection::double_update, opcode::update, twice);
  run_on("double norm_partial", rejection::norm, opcode::norm_partial, twice);
  run_on("double forward", rejection::double_pass, opcode::forward, twice);
  run_on("double backward", rejection::double_pass, opcode::backward, twice);
}

TEST_CASE("a wrong version is named") {
  auto const newer = [](test::editable& e, std::uint32_t at) { ++e.nodes[at].self.version; };
  for (opcode const op :
       {opcode::forward, opcode::recompute, opcode::backward, opcode::upload, opcode::update}) {
    run_on("wrong version", rejection::wrong_version, op, newer);
  }
  run_on("wrong version", rejection::wrong_version, opcode::rebuild, newer, 40);
}

TEST_CASE("an upload after the update finds a newer version than it names") {
  tally const t = run("late upload", test::scaled(1000), [](subject& s, tally& sum) {
    auto const at = test::positions(s.p, [&](schedule::instruction const& i) {
      return i.op == opcode::upload && s.job.layout[i.chunk].trainable &&
             !s.job.layout[i.chunk].oversize;
    });
    if (at.empty()) {
      return;
    }
    test::editable e(s.p);
    e.repeat_last(s.pick(at));
    schedule::verdict const v = s.verify(e.program());
    CHECK(v.reason == rejection::wrong_version);
    sum.add(v);
    ++e.nodes.back().self.version;
    CHECK(s.verify(e.program()).ok);
  });
  CHECK(t.of(rejection::wrong_version) >= test::scaled(100));
}

TEST_CASE("an instruction on another queue is refused") {
  tally const t = run("another queue", test::scaled(1000), [](subject& s, tally& sum) {
    test::editable e(s.p);
    auto& i = e.nodes[s.dice.between(0, e.nodes.size() - 1)].self;
    auto const shift = s.dice.between(1, queue_count - 1);
    i.queue = static_cast<queue_id>((static_cast<std::size_t>(i.queue) + shift) % queue_count);
    sum.add(s.verify(e.program()));
  });
  CHECK(t.accepted() == 0);
  CHECK(t.rejected() >= test::scaled(100));
}

TEST_CASE("any missing instruction is missed, but a recompute of nothing") {
  tally const t = run("skipped anything", test::scaled(3000), [](subject& s, tally& sum) {
    auto const at = static_cast<std::uint32_t>(s.dice.between(0, s.p.instructions.size() - 1));
    schedule::instruction const gone = s.p.instructions[at];
    test::editable e(s.p);
    e.erase(at);
    schedule::verdict const v = s.verify(e.program());
    CAPTURE(schedule::name_of(gone.op));
    bool const useless =
        gone.op == opcode::recompute && s.job.facts.shape(gone.block).saved.value == 0;
    CHECK((gone.op != opcode::rebuild || v.reason == rejection::missing_input));
    CHECK(v.ok == useless);
    sum.add(v);
  });
  CHECK(t.rejected() >= test::scaled(100));
}

TEST_CASE("exchanged neighbours are refused, unless nothing can tell") {
  tally const t = run("exchanged neighbours", test::scaled(3000), [](subject& s, tally& sum) {
    auto const at = static_cast<std::uint32_t>(s.dice.between(0, s.p.instructions.size() - 2));
    test::editable e(s.p);
    e.swap(at);
    schedule::program const q = e.program();
    schedule::verdict const v = s.verify(q);
    schedule::instruction const& a = q.instructions[at];
    schedule::instruction const& b = q.instructions[at + 1];
    bool const commute = a.op == opcode::norm_partial && b.op == opcode::norm_partial;
    if (v.ok) {
      CHECK((commute || !test::conflict(q, a, b)));
      CHECK_FALSE(test::races(q));
      CHECK_FALSE(test::overlaps(q));
    }
    sum.add(v);
  });
  CHECK(t.rejected() >= test::scaled(100));
}

TEST_CASE("an operand that points elsewhere is refused") {
  tally const t = run("another allocation", test::scaled(20'000), [](subject& s, tally& sum) {
    test::editable e(s.p);
    auto& n = e.nodes[s.dice.between(0, e.nodes.size() - 1)];
    if (n.operands.empty()) {
      return;
    }
    auto& o = n.operands[s.dice.between(0, n.operands.size() - 1)];
    auto const other = make_id<allocation_id>(s.dice.between(0, s.p.allocations.size() - 1));
    if (o.allocation == other || !reads(o.mode)) {
      return;
    }
    o.allocation = other;
    sum.add(s.verify(e.program()));
  });
  CHECK(t.accepted() == 0);
  CHECK(t.rejected() >= test::scaled(100));
}

TEST_CASE("damaged tables are refused, never followed") {
  tally const t = run("random words", test::scaled(3000), [](subject& s, tally& sum) {
    schedule::program q = s.p;
    auto const word = static_cast<std::uint32_t>(s.dice.next());
    auto& i = q.instructions[s.dice.between(0, q.instructions.size() - 1)];
    auto& o = q.operands[s.dice.between(0, q.operands.size() - 1)];
    auto& a = q.allocations[s.dice.between(0, q.allocations.size() - 1)];
    switch (s.dice.between(0, 9)) {
      case 0:
        i.first_operand = word;
        break;
      case 1:
        i.operand_count = word;
        break;
      case 2:
        i.first_dependency = word;
        i.dependency_count = word;
        break;
      case 3:
        i.op = static_cast<opcode>(schedule::opcode_count + word % 100);
        break;
      case 4:
        o.allocation.value = word;
        break;
      case 5:
        o.bytes = ~std::uint64_t{0} - word % 4096;
        break;
      case 6:
        o.offset = ~std::uint64_t{0} - word % 4096;
        break;
      case 7:
        a.offset = ~std::uint64_t{255};
        break;
      case 8:
        a.bytes = ~std::uint64_t{0} - word % 4096;
        break;
      default:
        q.spans.push_back({.chunk = {word}, .blocks = {{word}}});
        break;
    }
    sum.add(s.verify(q));
  });
  CHECK(t.accepted() == 0);
}

}  // namespace

}  // namespace mutants_test
