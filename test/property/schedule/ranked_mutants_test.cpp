// SPDX-License-Identifier: Apache-2.0
// Damaged programs over three ranks, and damaged segments of jobs that leave updates to the next
// step: refused for the right reason, on some rank at least.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace ranked_mutants_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::rejection;
using schedule::role;
using schedule::segment;
using test::erase;
using test::left_over;
using test::of;
using test::on;
using test::subject;
using test::tally;
using test::twice;

constexpr std::uint64_t first_seed = 60'000;
constexpr std::uint64_t ranks = 3;

/// `p` is any of the segments.
subject make_subject(std::uint64_t seed, std::uint64_t world, bool defers) {
  test::random_source r(seed);
  subject s{.facts = test::random_trace(r), .dice = test::random_source(~seed)};
  s.facts.job.world = world;
  s.layout = test::random_layout(r, s.facts);
  s.knobs = test::random_knobs(r, s.facts, s.layout);
  if (defers || s.dice.chance(40)) {
    s.knobs.time = update::timing::before_next_use;
    s.knobs.defer = s.dice.chance(50) ? 99 : s.dice.between32(1, 3);
  }
  auto all = schedule::compile_segments(s.facts, s.layout, s.knobs);
  REQUIRE(all.has_value());
  s.segments = *std::move(all);
  s.p = s.segments[s.dice.between(0, s.segments.size() - 1)];
  REQUIRE(s.verify(s.p).ok);
  return s;
}

/// Every mutant is refused for one of the reasons.
template <class Damage>
void refuse(char const* kind,
            std::initializer_list<rejection> expected,
            Damage const& damage,
            std::uint64_t world = ranks,
            bool defers = false) {
  test::refuse_each(
      kind,
      expected,
      first_seed,
      [=](std::uint64_t seed) { return make_subject(seed, world, defers); },
      damage);
}

// --- several ranks -------------------------------------------------------------------------------

/// The same program with operands where `rank` finds them.
schedule::program seen_by(schedule::program p, std::uint64_t rank) {
  for (schedule::operand& o : p.operands) {
    o.offset += rank * o.stride;
    o.stride = 0;
  }
  return p;
}

TEST_CASE("a dropped dependency is a race on the rank that looks, or was implied") {
  tally sum;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(800); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed, ranks, seed % 2 == 0);
    auto const at =
        test::positions(s.p, [](schedule::instruction const& i) { return i.dependency_count > 0; });
    if (at.empty()) {
      continue;
    }
    test::editable e(s.p);
    auto& d = e.nodes[s.pick(at)].dependencies;
    d.erase(d.begin() + static_cast<std::ptrdiff_t>(s.dice.between(0, d.size() - 1)));
    schedule::program const q = e.program();
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      schedule::verdict const v = s.verify(q, rank);
      CAPTURE(v.what);
      CHECK((v.ok ? rejection::race : v.reason) == rejection::race);
      CHECK(v.ok != test::races(seen_by(q, rank)));
      sum.add(v);
    }
  }
  sum.print("dropped dependency");
  CHECK(sum.rejected() >= test::scaled(100));
}

TEST_CASE("missing collectives are named") {
  refuse("missing gather",
         {rejection::not_resident, rejection::wrong_version},
         on(of(opcode::gather), erase));
  refuse("missing reduce", {rejection::missing_reduce}, on(of(opcode::reduce), erase));
  refuse("missing norm_exchange", {rejection::norm}, on(of(opcode::norm_exchange), erase));
  refuse(
      "missing loss_exchange", {rejection::missing_result}, on(of(opcode::loss_exchange), erase));
}

TEST_CASE("collectives too many are named") {
  refuse("extra reduce", {rejection::double_reduce}, on(of(opcode::reduce), twice));
  // What has been exchanged is no longer a rank's own.
  refuse("extra loss_exchange", {rejection::missing_result}, on(of(opcode::loss_exchange), twice));
}

TEST_CASE("a gather before its upload finds nothing to gather") {
  refuse(
      "gather before upload",
      {rejection::not_resident, rejection::race},
      on(of(opcode::gather), [](subject&, test::editable& e, std::uint32_t at) {
        auto& before = e.nodes[at == 0 ? 0 : at - 1];
        auto& gather = e.nodes[at];
        if (at == 0 || before.self.op != opcode::upload || before.self.chunk != gather.self.chunk) {
          return false;
        }
        // The order of the two turns round; who waited for either waits for both.
        std::erase(gather.dependencies, at - 1);
        gather.dependencies.insert(
            gather.dependencies.end(), before.dependencies.begin(), before.dependencies.end());
        for (std::size_t i = at + 1; i < e.nodes.size(); ++i) {
          auto& d = e.nodes[i].dependencies;
          if (std::ranges::find(d, at) != d.end()) {
            d.push_back(at - 1);
          }
        }
        e.swap(at - 1);
        e.nodes[at].dependencies.push_back(at - 1);
        return true;
      }));
}

TEST_CASE("a reduce of another contribution is refused") {
  refuse("reduce of another span",
         {rejection::wrong_contribution, rejection::malformed},
         on(of(opcode::reduce), [](subject& s, test::editable& e, std::uint32_t at) {
           auto& n = e.nodes[at];
           auto const count = e.frame.spans.size();
           if (count < 2) {
             return false;
           }
           auto const other =
               make_id<span_id>((n.self.span.index() + s.dice.between(1, count - 1)) % count);
           n.self.span = other;
           if (s.dice.chance(50)) {
             n.self.chunk = e.frame.spans[other.index()].chunk;
           }
           for (schedule::operand& o : n.operands) {
             o.span = other;
             o.chunk = n.self.chunk;
           }
           return true;
         }));
  refuse("reduce of another micro-batch",
         {rejection::wrong_contribution},
         on(of(opcode::reduce), [](subject& s, test::editable& e, std::uint32_t at) {
           std::uint32_t const count = s.p.micro_batches;
           std::uint32_t& m = e.nodes[at].self.micro_batch;
           m = (m + 1) % count;
           return count > 1;
         }));
}

/// Every operand that lies elsewhere on every rank.
std::vector<std::pair<std::uint32_t, std::size_t>> sharded(test::editable const& e) {
  std::vector<std::pair<std::uint32_t, std::size_t>> out;
  for (std::uint32_t i = 0; i < e.nodes.size(); ++i) {
    for (std::size_t k = 0; k < e.nodes[i].operands.size(); ++k) {
      if (e.nodes[i].operands[k].stride > 0) {
        out.emplace_back(i, k);
      }
    }
  }
  return out;
}

template <class Change>
auto on_sharded(Change const& change) {
  return [=](subject& s, schedule::program& q) {
    test::editable e(q);
    auto const at = sharded(e);
    if (at.empty()) {
      return false;
    }
    auto const [i, k] = at[s.dice.between(0, at.size() - 1)];
    change(e.nodes[i].operands[k], s);
    q = e.program();
    return true;
  };
}

TEST_CASE("a wrong stride or another rank's shard is refused") {
  auto const any = {rejection::malformed,
                    rejection::race,
                    rejection::not_resident,
                    rejection::wrong_version,
                    rejection::missing_reduce,
                    rejection::wrong_contribution,
                    rejection::missing_accumulate,
                    rejection::missing_result,
                    rejection::missing_input};
  refuse("no stride", any, on_sharded([](schedule::operand& o, subject&) { o.stride = 0; }));
  refuse("another stride", any, on_sharded([](schedule::operand& o, subject& s) {
           o.stride = s.dice.chance(50) ? 2 * o.stride : o.stride + 4;
         }));
  refuse("the next rank's shard", any, on_sharded([](schedule::operand& o, subject&) {
           o.offset += o.stride;
         }));
  refuse("a shorter shard", any, on_sharded([](schedule::operand& o, subject&) {
           o.bytes -= std::min<std::uint64_t>(o.bytes, 4);
         }));
}

TEST_CASE("an update of a whole instead of a shard is refused") {
  refuse("update of a whole",
         {rejection::malformed},
         on(of(opcode::update), [](subject& s, test::editable& e, std::uint32_t at) {
           auto& n = e.nodes[at];
           std::uint64_t const all = s.layout[n.self.chunk].elements;
           for (schedule::operand& o : n.operands) {
             if (o.what == role::value) {
               o.bytes = std::min(o.bytes * ranks, e.frame.allocations[o.allocation.index()].bytes);
               o.offset = 0;
               o.stride = 0;
             }
           }
           n.self.amount = all;
           return true;
         }));
}

TEST_CASE("staging smaller than what it reduces, or missing, is refused") {
  refuse("no staging",
         {rejection::malformed},
         on(of(opcode::reduce), [](subject&, test::editable& e, std::uint32_t at) {
           auto& operands = e.nodes[at].operands;
           std::erase_if(operands,
                         [](schedule::operand const& o) { return o.what == role::staging; });
           return true;
         }));
  refuse("small staging",
         {rejection::malformed},
         on(of(opcode::reduce), [](subject&, test::editable& e, std::uint32_t at) {
           for (schedule::operand& o : e.nodes[at].operands) {
             o.bytes -= o.what == role::staging ? o.bytes / ranks : 0;
           }
           return true;
         }));
}

TEST_CASE("staging that isn't aligned is refused") {
  refuse("staging beside a granule", {rejection::malformed}, [](subject& s, schedule::program& q) {
    std::vector<std::uint32_t> roomy;  // operands smaller than the staging of the largest chunk
    for (std::uint32_t k = 0; k < q.operands.size(); ++k) {
      schedule::operand const& o = q.operands[k];
      if (o.what == role::staging && o.bytes < q.allocations[o.allocation.index()].bytes) {
        roomy.push_back(k);
      }
    }
    if (roomy.empty()) {
      return false;
    }
    q.operands[s.pick(roomy)].offset = s.dice.chance(50) ? 4 : address_granule / 2;
    return true;
  });
}

TEST_CASE("a program for other ranks, or another rank than there are, is refused") {
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed, ranks, false);
    CHECK(s.verify(s.p, ranks).reason == rejection::malformed);
    schedule::program q = s.p;
    q.ranks = ranks + 1;
    CHECK(s.verify(q).reason == rejection::malformed);
    q.ranks = 1;
    CHECK(s.verify(q).reason == rejection::malformed);
  }
}

// --- segments ------------------------------------------------------------------------------------

/// Segments that resume only.
template <class Damage>
void refuse_resumed(char const* kind,
                    std::initializer_list<rejection> expected,
                    Damage const& damage) {
  for (segment const part : {segment::resume, segment::flush}) {
    std::string const name = std::string(name_of(part)) + ": " + kind;
    for (std::uint64_t const world : {std::uint64_t{1}, ranks}) {
      refuse(
          name.c_str(),
          expected,
          [&](subject& s, schedule::program& q) {
            schedule::program const* const found = s.find(part);
            if (found == nullptr) {
              return false;
            }
            q = *found;
            return damage(s, q);
          },
          world,
          true);
    }
  }
}

TEST_CASE("an update that was left over is carried out once") {
  auto const missing = [](subject&, test::editable& e, std::uint32_t at) {
    if (e.nodes.size() == 1) {
      return false;  // nothing would be left
    }
    e.erase(at);
    return true;
  };
  refuse_resumed("left-over update missing",
                 {rejection::wrong_version, rejection::missing_update},
                 on(left_over, missing));
  refuse_resumed("left-over update twice", {rejection::double_update}, on(left_over, twice));
}

TEST_CASE("an update that was left over comes before everything that counts on it") {
  // Uploads and the next step's first contribution come before it now.
  auto const last = [](subject&, test::editable& e, std::uint32_t at) {
    e.repeat_last(at);
    e.erase(at);
    return true;
  };
  refuse(
      "left-over update at the end",
      {rejection::wrong_version, rejection::double_accumulate, rejection::missing_accumulate},
      [&](subject& s, schedule::program& q) {
        schedule::program const* const found = s.find(segment::resume);
        if (found == nullptr) {
          return false;
        }
        q = *found;
        return on(left_over, last)(s, q);
      },
      ranks,
      true);
}

bool zeroes_host_norm(schedule::instruction const& i) {
  return i.op == opcode::zero && i.queue == queue_id::cpu;
}

TEST_CASE("the norm is of this step's gradient, not of the one that was left over") {
  refuse(
      "norm before the left-over update",
      {rejection::missing_accumulate},
      [](subject& s, schedule::program& q) {
        schedule::program const* const found = s.find(segment::resume);
        if (found == nullptr) {
          return false;
        }
        q = *found;
        auto const zero = test::positions(q, zeroes_host_norm);
        auto const late = test::positions(q, left_over);
        if (late.empty()) {
          return false;
        }
        chunk_id const c = q.instructions[s.pick(late)].chunk;
        auto const norm = test::positions(q, [c](schedule::instruction const& i) {
          return i.op == opcode::norm_partial && i.chunk == c;
        });
        test::editable e(q);
        auto const first = e.nodes[zero.front()];
        auto const second = e.nodes[norm.front()];
        e.erase(norm.front());
        e.erase(zero.front());
        test::insert_alone(e, second, false);
        test::insert_alone(e, first, false);
        q = e.program();
        return true;
      },
      ranks,
      true);
}

/// Puts an update of a deferred chunk, as a resuming segment has it, into `q` at its start or end.
bool add_deferred_update(subject& s, schedule::program& q, std::uint32_t version, bool at_end) {
  schedule::program const* const resume = s.find(segment::resume);
  if (resume == nullptr) {
    return false;
  }
  auto const at = test::positions(*resume, left_over);
  if (at.empty()) {
    return false;
  }
  test::editable const from(*resume);
  test::editable e(q);
  test::editable::node n = from.nodes[s.pick(at)];
  n.self.version = version;
  test::insert_alone(e, n, at_end);
  q = e.program();
  return true;
}

TEST_CASE("a left-over update has no place in a step that starts from nothing left over") {
  for (segment const part : {segment::step, segment::evaluate}) {
    std::string const name = "left-over update in " + std::string(name_of(part));
    refuse(
        name.c_str(),
        {rejection::wrong_version},
        [&](subject& s, schedule::program& q) {
          q = *s.find(part);
          return add_deferred_update(s, q, 0, false);
        },
        ranks,
        true);
  }
}

TEST_CASE("an update that belongs to the next step isn't carried out early") {
  for (std::uint64_t const world : {std::uint64_t{1}, ranks}) {
    refuse(
        "deferred update in its own step",
        {rejection::wrong_version},
        [&](subject& s, schedule::program& q) {
          q = *s.find(segment::step);
          return add_deferred_update(s, q, 1, true);
        },
        world,
        true);
    refuse(
        "deferred update in its own resumed step",
        {rejection::double_update},
        [&](subject& s, schedule::program& q) {
          if (s.find(segment::resume) == nullptr) {
            return false;
          }
          q = *s.find(segment::resume);
          return add_deferred_update(s, q, 1, true);
        },
        world,
        true);
  }
}

TEST_CASE("a segment isn't another one") {
  for (segment const from : {segment::step, segment::resume, segment::flush, segment::evaluate}) {
    for (segment const to : {segment::step, segment::resume, segment::flush, segment::evaluate}) {
      if (from == to) {
        continue;
      }
      std::string const name = std::string(name_of(from)) + " as " + std::string(name_of(to));
      refuse(
          name.c_str(),
          {rejection::malformed,
           rejection::wrong_version,
           rejection::double_update,
           rejection::missing_update,
           rejection::missing_pass,
           rejection::missing_input,  // scalars of the step before
           rejection::missing_accumulate,
           rejection::double_accumulate},
          [&](subject& s, schedule::program& q) {
            if (s.find(from) == nullptr || s.find(segment::resume) == nullptr) {
              return false;
            }
            q = *s.find(from);
            q.part = to;
            q.micro_batches = s.find(to)->micro_batches;
            return true;
          },
          ranks,
          true);
    }
  }
}

TEST_CASE("what is deferred can't be said otherwise") {
  refuse(
      "another deferral",
      {rejection::malformed,
       rejection::wrong_version,
       rejection::missing_update,
       rejection::double_update,
       rejection::missing_accumulate,
       rejection::double_accumulate},
      [](subject& s, schedule::program& q) {
        if (q.deferred.empty() || q.part == segment::evaluate) {
          return false;  // an evaluation is the same; verify_segments compares
        }
        auto const c = s.dice.between(0, q.deferred.size() - 1);
        q.deferred[c] ^= 1U;
        return true;
      },
      ranks,
      true);
}

}  // namespace

}  // namespace ranked_mutants_test
