// SPDX-License-Identifier: Apache-2.0
// Memory that the programs of a cut step share: what one of them leaves for another or the caller.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/cut_subjects.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cut_sharing_test {

namespace {

using namespace protrain;
using namespace test::cut;

/// The host memory that operands of one role lie in; absent where the program has none.
allocation_id host_memory(program const& p, role what) {
  for (schedule::operand const& o : p.operands) {
    if (o.what == what && p.allocations[o.allocation.index()].where == space::host) {
      return o.allocation;
    }
  }
  return {};
}

/// A zero of one micro-batch's losses at `offset` of the host's `memory`.
test::editable::node host_zero(subject const& s, allocation_id memory, std::uint64_t offset) {
  std::uint64_t const size = 4 * s.facts.job.micro_batch;
  return {.self = {.op = opcode::zero, .queue = queue_id::cpu, .amount = size},
          .operands = {{.what = role::loss,
                        .mode = schedule::access::write,
                        .allocation = memory,
                        .offset = offset,
                        .bytes = size}}};
}

TEST_CASE("losses that an earlier program of the step left for the caller stay") {
  refuse("losses of before wiped",
         {rejection::malformed, rejection::missing_result, rejection::wrong_queue},
         in(later_parts, [](subject& s, program& q) {
           allocation_id const losses = host_memory(q, role::loss);
           std::uint64_t const k = s.dice.between(0, q.before - 1);
           test::editable e(q);
           auto n = host_zero(s, losses, k * 4 * s.facts.job.micro_batch);
           n.operands[0].stride =
               s.facts.job.world > 1 ? 4 * s.facts.job.micro_batch * s.facts.job.accumulate : 0;
           test::insert_alone(e, n, false);
           q = e.program();
           return true;
         }));
}

TEST_CASE("scalars that the caller gave for a later program of the step stay") {
  refuse_together("scalars wiped",
                  {rejection::malformed, rejection::missing_input, rejection::wrong_queue},
                  in(open_parts, [](subject& s, program& q) {
                    // A step that needs the norm computes them at its end.
                    allocation_id const scalars =
                        host_memory(*s.find(segment::last), role::scalars);
                    bool const given = scalars.valid() && !needs_norm(s.facts.job);
                    if (!given || host_memory(q, role::scalars).valid()) {
                      return false;
                    }
                    test::editable e(q);
                    test::insert_alone(e, host_zero(s, scalars, 0), false);
                    q = e.program();
                    return true;
                  }));
}

std::size_t carried_count(program const& p) {
  return static_cast<std::size_t>(
      std::ranges::count_if(p.allocations, [](auto const& a) { return a.carried; }));
}

/// Adds carried memory behind what all segments use. Its id is the same in all of them.
allocation_id add_carried(std::vector<program>& all, schedule::allocation a) {
  std::size_t const at = carried_count(all.front());
  a.offset = 0;
  for (program const& p : all) {
    a.offset = std::max(a.offset, extent(p, a.where));
  }
  for (program& p : all) {
    a.end = static_cast<std::uint32_t>(p.instructions.size());
    p.allocations.insert(p.allocations.begin() + static_cast<std::ptrdiff_t>(at), a);
    for (schedule::operand& o : p.operands) {
      o.allocation.value += o.allocation.index() >= at ? 1U : 0U;
    }
  }
  return make_id<allocation_id>(at);
}

/// Moves the operands of one role on the host elsewhere.
void move_role(program& p, role what, allocation_id to) {
  for (schedule::operand& o : p.operands) {
    if (o.what == what && p.allocations[o.allocation.index()].where == space::host) {
      o.allocation = to;
    }
  }
}

constexpr std::array shared_roles{role::batch, role::scalars, role::loss, role::report};

char const* name_of_shared(role what) {
  return what == role::batch     ? "batches"
         : what == role::scalars ? "scalars"
         : what == role::loss    ? "losses"
                                 : "report";
}

/// Segments that have host memory of that role, by position.
std::vector<std::uint32_t> users_of(subject const& s, role what) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < s.segments.size(); ++i) {
    if (host_memory(s.segments[i], what).valid()) {
      out.push_back(i);
    }
  }
  return out;
}

TEST_CASE("programs that look for the caller at different places are refused, in any order") {
  for (role const what : {role::batch, role::scalars, role::loss}) {  // one program reports
    std::string const kind = std::string(name_of_shared(what)) + " elsewhere";
    tally sum;
    for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(400); ++seed) {
      CAPTURE(kind);
      CAPTURE(seed);
      subject s = make_subject(seed);
      auto const users = users_of(s, what);
      if (users.size() < 2) {
        continue;  // it may lie anywhere
      }
      std::vector<program> all = s.segments;
      program& q = all[s.pick(users)];
      segment const part = q.part;
      CAPTURE(name_of(part));
      allocation_id const to = add_carried(all, q.allocations[host_memory(q, what).index()]);
      REQUIRE(s.verify_all(all).ok);
      move_role(q, what, to);
      if (s.dice.chance(50)) {
        shuffle(s.dice, all);
      }
      CAPTURE(name_of(all.front().part));
      schedule::verdict const v = s.verify_all(all);
      CAPTURE(v.what);
      CHECK(v.reason == rejection::malformed);
      sum.add(v);
    }
    sum.print(kind.c_str());
    CHECK(sum.accepted() == 0);
    CHECK(sum.rejected() >= test::scaled(400) / 8);
  }
}

bool touches(program const& p, allocation_id a) {
  return std::ranges::any_of(p.operands, [a](auto const& o) { return o.allocation == a; });
}

/// Moves what `q` gives to the caller or takes from it into memory where only other programs look,
/// for something else. False where there is nothing like that.
bool borrow(subject& s, program& q) {
  std::vector<std::pair<role, allocation_id>> found;
  for (role const what : shared_roles) {
    allocation_id const own = host_memory(q, what);
    for (role const other : shared_roles) {
      for (std::uint32_t const i : users_of(s, other)) {
        allocation_id const to = host_memory(s.segments[i], other);
        if (own.valid() && other != what && !touches(q, to) &&
            q.allocations[to.index()].bytes >= q.allocations[own.index()].bytes) {
          found.emplace_back(what, to);
        }
      }
    }
  }
  if (found.empty()) {
    return false;
  }
  auto const [what, to] = found[s.dice.between(0, found.size() - 1)];
  move_role(q, what, to);
  return true;
}

TEST_CASE("what the caller finds of one program isn't what it gives another") {
  refuse_together("report and scalars in one place",
                  {rejection::malformed},
                  in(std::array{segment::first_resumed, segment::last, segment::flush}, borrow));
}

/// Lays the device's losses of micro-batch 0 at a fixed place and those of micro-batch 1 so that
/// they move over them: apart in the first and the last repetition, the same in the second.
void cross_losses(subject const& s, program& q) {
  std::uint64_t const size = 4 * s.facts.job.micro_batch;
  auto const at = make_id<allocation_id>(carried_count(q));
  q.allocations.insert(q.allocations.begin() + static_cast<std::ptrdiff_t>(at.index()),
                       {.where = space::device,
                        .what = category::batch,
                        .offset = extent(q, space::device),
                        .bytes = size * (q.before + q.micro_batches * q.times),
                        .end = static_cast<std::uint32_t>(q.instructions.size())});
  for (schedule::operand& o : q.operands) {
    o.allocation.value += o.allocation >= at ? 1U : 0U;
    schedule::allocation const& a = q.allocations[o.allocation.index()];
    if (o.what == role::loss && a.where == space::device) {
      bool const moves = a.micro_batch == 1;
      o.allocation = at;
      o.offset = moves ? 0 : size * (q.before + q.micro_batches);
      o.advance = moves ? size : 0;
    }
  }
}

TEST_CASE("memory that a repetition between the first and the last mixes up is refused") {
  tally sum;
  std::uint64_t const cases = test::scaled(400);
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    subject const s = make_long_subject(seed);
    program q = s.p;
    cross_losses(s, q);
    schedule::verdict const v = s.verify(q);
    CHECK_FALSE(v.ok);
    sum.add(v);
  }
  sum.print("losses that cross");
  CHECK(sum.accepted() == 0);
  CHECK(sum.rejected() >= cases / 8);
}

}  // namespace

}  // namespace cut_sharing_test
