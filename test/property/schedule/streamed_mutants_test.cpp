// SPDX-License-Identifier: Apache-2.0
// Damaged programs that stream chunks for their updates, over one rank and three, deferred or not,
// whole or cut: refused for the right reason, on some rank at least.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace streamed_mutants_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::program;
using schedule::rejection;
using schedule::role;
using test::erase;
using test::of;
using test::on;
using test::subject;
using test::twice;

constexpr std::uint64_t first_seed = 110'000;
constexpr std::uint64_t ranks = 3;

/// `p` is any of the segments. Chunks that move are streamed, most of them.
subject make_subject(std::uint64_t seed) {
  test::random_source r(seed);
  subject s{.facts = test::random_trace(r), .dice = test::random_source(~seed)};
  s.facts.job.world = seed % 2 == 0 ? 1 : ranks;
  s.facts.job.accumulate = s.dice.chance(40) ? s.dice.between(5, 9) : s.facts.job.accumulate;
  s.layout = test::random_layout(r, s.facts);
  s.knobs = test::random_knobs(r, s.facts, s.layout);
  for (update::site& where : s.knobs.sites) {
    bool const moves = where != update::site::gpu;
    where = !moves ? where : s.dice.chance(80) ? update::site::streamed : update::site::cpu;
  }
  if (seed / 2 % 2 == 0) {
    s.knobs.time = update::timing::before_next_use;
    s.knobs.defer = s.dice.chance(50) ? 99 : s.dice.between32(0, 3);
  }
  s.knobs.unroll = s.dice.between32(1, 4);
  auto all = schedule::compile_segments(s.facts, s.layout, s.knobs);
  REQUIRE(all.has_value());
  s.segments = *std::move(all);
  s.p = s.segments[s.dice.between(0, s.segments.size() - 1)];
  for (program const& q : s.segments) {
    s.p = test::positions(s.p, of(opcode::state_in)).empty() ? q : s.p;
  }
  schedule::verdict const v = s.verify(s.p);
  CAPTURE(v.what);
  REQUIRE(v.ok);
  return s;
}

template <class Damage>
void refuse(char const* kind, std::initializer_list<rejection> expected, Damage const& damage) {
  test::refuse_each(kind, expected, first_seed, make_subject, damage);
}

TEST_CASE("a part that doesn't go up, isn't updated or doesn't come back is missed") {
  refuse("missing state_in", {rejection::not_resident}, on(of(opcode::state_in), erase));
  refuse("missing update_part", {rejection::missing_update}, on(of(opcode::update_part), erase));
  refuse("missing state_out",
         {rejection::missing_update, rejection::not_resident, rejection::wrong_version},
         on(of(opcode::state_out), erase));
}

TEST_CASE("a part is updated and comes back once") {
  refuse("update_part twice", {rejection::double_update}, on(of(opcode::update_part), twice));
  refuse("state_out twice", {rejection::double_update}, on(of(opcode::state_out), twice));
  refuse("all of it twice",
         {rejection::wrong_version, rejection::double_update, rejection::missing_accumulate},
         [](subject& s, program& q) {
           auto const at = test::positions(q, of(opcode::update_part));
           if (at.empty()) {
             return false;
           }
           schedule::instruction const what = q.instructions[s.pick(at)];
           auto const same = test::positions(q, [&](schedule::instruction const& i) {
             return i.chunk == what.chunk && i.part == what.part &&
                    (i.op == opcode::state_in || i.op == opcode::state_out ||
                     i.op == opcode::update_part);
           });
           // What the slot of a contribution held is gone at the end.
           bool const direct = std::ranges::any_of(
               q.operands_of(what), [](auto const& o) { return o.what == role::gradient; });
           if (direct) {
             return false;
           }
           test::editable e(q);
           for (std::uint32_t const i : same) {
             e.repeat_last(i);
           }
           q = e.program();
           return true;
         });
}

TEST_CASE("a part that comes back before its update is refused") {
  refuse("state_out before update_part",
         {rejection::missing_update},
         on(of(opcode::update_part), [](subject&, test::editable& e, std::uint32_t at) {
           auto& out = e.nodes[at + 1];
           if (out.self.op != opcode::state_out || out.self.chunk != e.nodes[at].self.chunk) {
             return false;
           }
           // The order of the two turns round; who waited for either waits for both.
           out.dependencies.clear();
           for (std::uint32_t i = 0; i < at; ++i) {
             out.dependencies.push_back(i);
           }
           for (std::size_t i = at + 2; i < e.nodes.size(); ++i) {
             auto& d = e.nodes[i].dependencies;
             if (std::ranges::find(d, at + 1) != d.end()) {
               d.push_back(at);
             }
           }
           e.swap(at);
           e.nodes[at + 1].dependencies.push_back(at);
           return true;
         }));
}

TEST_CASE("an instruction that names another part, version or chunk is refused") {
  for (opcode const op : {opcode::state_in, opcode::update_part, opcode::state_out}) {
    CAPTURE(name_of(op));
    refuse("another part",
           {rejection::malformed,
            rejection::not_resident,
            rejection::missing_update,
            rejection::wrong_contribution},
           on(of(op), [](subject& s, test::editable& e, std::uint32_t at) {
             std::uint32_t& part = e.nodes[at].self.part;
             part = part > 0 && s.dice.chance(50) ? part - 1 : part + 1;
             return true;
           }));
    refuse("another version",
           {rejection::wrong_version},
           on(of(op), [](subject& s, test::editable& e, std::uint32_t at) {
             std::uint32_t& version = e.nodes[at].self.version;
             version = version > 0 && s.dice.chance(50) ? version - 1 : version + 1;
             return true;
           }));
    refuse("another chunk",
           {rejection::malformed,
            rejection::wrong_version,
            rejection::frozen_update,
            rejection::double_update},
           on(of(op), [](subject& s, test::editable& e, std::uint32_t at) {
             chunk_id& c = e.nodes[at].self.chunk;
             auto const n = s.layout.chunks.size();
             c = make_id<chunk_id>((c.index() + s.dice.between(1, n)) % n);
             return n > 1 && c != e.nodes[at].operands.front().chunk;
           }));
  }
}

/// Changes one of an instruction's operands that lie in `where`.
template <class Change>
auto on_operand(space where, Change const& change) {
  return [=](subject& s, test::editable& e, std::uint32_t at) {
    std::vector<schedule::operand*> found;
    for (schedule::operand& o : e.nodes[at].operands) {
      if (e.frame.allocations[o.allocation.index()].where == where && o.what != role::scalars) {
        found.push_back(&o);
      }
    }
    return !found.empty() && change(s, e, *found[s.dice.between(0, found.size() - 1)]);
  };
}

TEST_CASE("a part of another home, or another part of the home, is refused") {
  for (opcode const op : {opcode::state_in, opcode::state_out}) {
    CAPTURE(name_of(op));
    refuse(
        "another home",
        {rejection::malformed, rejection::not_resident, rejection::race, rejection::dead_memory},
        on(of(op), on_operand(space::host, [](subject& s, test::editable& e, schedule::operand& o) {
             auto const n = e.frame.allocations.size();
             auto const other = make_id<allocation_id>(s.dice.between(0, n - 1));
             bool const differs = other != o.allocation;
             o.allocation = other;
             return differs;
           })));
    refuse(
        "another place",
        {rejection::malformed, rejection::not_resident, rejection::race},
        on(of(op), on_operand(space::host, [](subject& s, test::editable&, schedule::operand& o) {
             o.offset =
                 s.dice.chance(50) && o.offset >= o.bytes ? o.offset - o.bytes : o.offset + o.bytes;
             return true;
           })));
    refuse("fewer bytes",
           {rejection::malformed},
           on(of(op), on_operand(space::host, [](subject&, test::editable&, schedule::operand& o) {
                o.bytes -= 4;
                return true;
              })));
  }
}

std::vector<allocation_id> slots_of(test::editable const& e) {
  std::vector<allocation_id> out;
  for (test::editable::node const& n : e.nodes) {
    if (n.self.op == opcode::state_in) {
      out.push_back(n.operands.front().allocation);
    }
  }
  return out;
}

TEST_CASE("a slot that holds something else is refused") {
  for (opcode const op : {opcode::state_in, opcode::update_part, opcode::state_out}) {
    CAPTURE(name_of(op));
    refuse("another slot",
           {rejection::malformed,
            rejection::not_resident,
            rejection::race,
            rejection::missing_update,
            rejection::double_update,
            rejection::missing_accumulate,
            rejection::wrong_contribution,
            rejection::dead_memory},
           on(of(op),
              on_operand(space::device, [](subject& s, test::editable& e, schedule::operand& o) {
                auto const n = e.frame.allocations.size();
                allocation_id other = make_id<allocation_id>(s.dice.between(0, n - 1));
                if (auto const slots = slots_of(e); s.dice.chance(60)) {
                  other = slots[s.dice.between(0, slots.size() - 1)];
                }
                bool const differs = other != o.allocation;
                o.allocation = other;
                return differs;
              })));
  }
}

TEST_CASE("a gradient of another part, or of none, is refused") {
  refuse("another part's gradient",
         {rejection::malformed,
          rejection::race,  // it overlaps what is updated
          rejection::wrong_contribution,
          rejection::missing_accumulate},
         on(of(opcode::update_part), [](subject& s, test::editable& e, std::uint32_t at) {
           for (schedule::operand& o : e.nodes[at].operands) {
             if (o.what == role::gradient || o.what == role::store) {
               o.offset = s.dice.chance(50) && o.offset >= 128 ? o.offset - 128 : o.offset + 128;
               return true;
             }
           }
           return false;
         }));
  refuse("no gradient",
         {rejection::malformed},
         on(of(opcode::update_part), [](subject&, test::editable& e, std::uint32_t at) {
           return std::erase_if(e.nodes[at].operands, [](schedule::operand const& o) {
                    return o.what == role::gradient || o.what == role::store;
                  }) > 0;
         }));
}

TEST_CASE("parts of other sizes, and streamed chunks that aren't, are refused") {
  refuse("another size of parts",
         {rejection::malformed, rejection::not_resident, rejection::missing_update},
         [](subject& s, program& q) {
           if (test::positions(q, of(opcode::state_in)).empty()) {
             return false;
           }
           auto const at = s.pick(test::positions(q, of(opcode::state_in)));
           std::uint64_t& part = q.part_elements[q.instructions[at].chunk.index()];
           std::uint64_t const shard =
               s.layout[q.instructions[at].chunk].elements / s.facts.job.world;
           // A part larger than the shard is no other cut of it.
           part = s.dice.chance(50) && part > 128 ? part - 128 : part + (part == shard ? 64 : 128);
           return true;
         });
  refuse("said not to be streamed", {rejection::malformed}, [](subject& s, program& q) {
    auto const at = test::positions(q, of(opcode::state_in));
    if (at.empty()) {
      return false;
    }
    q.part_elements[q.instructions[s.pick(at)].chunk.index()] = 0;
    return true;
  });
}

/// Copies an instruction of one segment to the end of another.
auto copied(schedule::segment from, schedule::segment to, opcode op) {
  return [=](subject& s, program& q) {
    program const* const p = s.find(from);
    program const* const into = s.find(to);
    if (p == nullptr || into == nullptr) {
      return false;
    }
    auto const at = test::positions(*p, of(op));
    if (at.empty()) {
      return false;
    }
    test::editable e(*into);
    test::insert_alone(e, test::editable(*p).nodes[s.pick(at)], true);
    q = e.program();
    return true;
  };
}

TEST_CASE("a part doesn't move before its step's last gradient") {
  using schedule::segment;
  for (opcode const op : {opcode::state_in, opcode::state_out}) {
    CAPTURE(name_of(op));
    refuse("in the first part of a step",
           {rejection::double_update},
           copied(segment::last, segment::first, op));
  }
}

}  // namespace

}  // namespace streamed_mutants_test
