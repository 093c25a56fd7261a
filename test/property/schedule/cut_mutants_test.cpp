// SPDX-License-Identifier: Apache-2.0
// Steps that are cut into several programs: what they add up to, and damaged programs and sets of
// programs, which are refused for the right reason.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
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

namespace cut_mutants_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::program;
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

constexpr std::uint64_t first_seed = 80'000;
constexpr std::uint64_t ranks = 3;

constexpr std::array cut_parts{
    segment::first, segment::first_resumed, segment::middle, segment::last};
/// After which the step isn't over.
constexpr std::array open_parts{segment::first, segment::first_resumed, segment::middle};
/// Before which it has begun.
constexpr std::array later_parts{segment::middle, segment::last};
constexpr std::array beginning_parts{segment::first, segment::first_resumed};

// --- steps that are cut --------------------------------------------------------------------------

std::vector<program> compile_all(subject const& s, std::uint32_t unroll) {
  schedule::knobs k = s.knobs;
  k.unroll = unroll;
  auto all = schedule::compile_segments(s.facts, s.layout, k);
  REQUIRE(all.has_value());
  return *std::move(all);
}

/// One and three ranks, with and without updates that are left to the next step, in turns.
/// `segments` are there for `compile_all` to fill.
subject make_job(std::uint64_t seed) {
  test::random_source r(seed);
  subject s{.facts = test::random_trace(r), .dice = test::random_source(~seed)};
  s.facts.job.world = seed % 2 == 0 ? 1 : ranks;
  s.layout = test::random_layout(r, s.facts);
  s.knobs = test::random_knobs(r, s.facts, s.layout);
  bool const defers = seed / 2 % 2 == 0;
  if (defers || s.dice.chance(30)) {
    s.knobs.time = update::timing::before_next_use;
    s.knobs.defer = !defers ? 0 : s.dice.chance(50) ? 99 : s.dice.between32(1, 3);
  }
  return s;
}

/// A step that is cut, at random.
subject make_subject(std::uint64_t seed) {
  subject s = make_job(seed);
  s.facts.job.accumulate = s.dice.between(2, 9);
  auto const most = static_cast<std::uint32_t>(s.facts.job.accumulate) - 1;
  // Three programs and more take an unroll of less than half the step.
  s.knobs.unroll = s.dice.between32(1, s.dice.chance(60) ? std::max(1U, most / 2) : most);
  s.segments = compile_all(s, s.knobs.unroll);
  s.p = s.segments[s.dice.between(0, s.segments.size() - 1)];
  return s;
}

/// One whose middle runs three times, two micro-batches each.
subject make_long_subject(std::uint64_t seed) {
  subject s = make_job(seed);
  s.facts.job.accumulate = s.dice.between(9, 10);
  s.knobs.unroll = 2;
  s.segments = compile_all(s, s.knobs.unroll);
  s.p = *s.find(segment::middle);
  REQUIRE(s.p.times == 3);
  return s;
}

/// The same program with operands where `rank` finds them, the `nth` time that it runs.
program seen_by(program p, std::uint64_t rank, std::uint64_t nth) {
  std::uint64_t const before = p.before + nth * p.micro_batches;
  for (schedule::operand& o : p.operands) {
    o.offset += rank * o.stride + before * o.advance;
    o.stride = 0;
    o.advance = 0;
  }
  return p;
}

TEST_CASE("cut steps are accepted for every rank, exactly within their extent") {
  std::array<std::uint64_t, schedule::segment_count> parts{};
  std::uint64_t repeated = 0;
  std::uint64_t shorter = 0;
  std::uint64_t const cases = test::scaled(400);
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    std::uint64_t device = 0;
    std::uint64_t host = 0;
    for (program const& p : s.segments) {
      CAPTURE(name_of(p.part));
      schedule::verdict const v = s.verify(p);
      CAPTURE(v.what);
      REQUIRE(v.ok);
      ++parts[static_cast<std::size_t>(p.part)];
      repeated += p.times > 1 ? 1U : 0U;
      shorter += p.part == segment::last && p.micro_batches < p.before ? 1U : 0U;
      device = std::max(device, schedule::memory_of(p, space::device).peak);
      host = std::max(host, schedule::memory_of(p, space::host).peak);
    }
    schedule::verdict const v = s.verify_all(s.segments);
    CAPTURE(v.what);
    REQUIRE(v.ok);
    REQUIRE(schedule::verify_segments(s.segments, s.facts, s.layout, device, host).ok);
    REQUIRE(schedule::verify_segments(s.segments, s.facts, s.layout, device, host - 1).reason ==
            rejection::over_budget);
  }
  for (segment const part : cut_parts) {
    CHECK(parts[static_cast<std::size_t>(part)] >= cases / 8);
  }
  CHECK(parts[static_cast<std::size_t>(segment::first)] == cases);
  CHECK(parts[static_cast<std::size_t>(segment::last)] == cases);
  CHECK(parts[static_cast<std::size_t>(segment::step)] == 0);
  CHECK(repeated >= cases / 20);
  CHECK(shorter >= cases / 20);
}

TEST_CASE("brute force agrees for every rank and every repetition") {
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    for (program const& p : s.segments) {
      REQUIRE_FALSE(test::overlaps(p));
      for (std::uint64_t rank = 0; rank < s.facts.job.world; ++rank) {
        for (std::uint64_t nth = 0; nth < p.times; ++nth) {
          REQUIRE_FALSE(test::races(seen_by(p, rank, nth)));
        }
      }
    }
  }
}

TEST_CASE("a step is cut into as few programs as its unroll allows, the last no larger") {
  for (std::uint32_t all = 1; all <= 200; ++all) {
    for (std::uint32_t unroll = 1; unroll <= 201; ++unroll) {
      schedule::cut const c = schedule::cut_step(all, unroll);
      std::uint32_t const programs = c.whole() ? 1 : c.middles + 2;
      REQUIRE(c.first * (c.middles + 1) + c.last == all);
      REQUIRE(c.whole() == (all <= unroll));
      REQUIRE(c.first <= unroll);
      REQUIRE(c.last <= c.first);
      REQUIRE((programs - 1) * unroll < all);
      REQUIRE(programs * unroll >= all);
    }
  }
}

/// What the programs of one step do, counted one after the other.
struct counted {
  std::uint64_t batches = 0;
  std::uint64_t losses = 0;
  std::uint64_t finishes = 0;
  std::vector<std::uint64_t> forwards{};   ///< by block
  std::vector<std::uint64_t> backwards{};  ///< by block
  std::vector<std::uint64_t> sums{};       ///< by chunk: contributions since its last update
  std::vector<std::uint64_t> updates{};    ///< by chunk: this step's own
  std::vector<std::uint64_t> left_over{};  ///< by chunk
  bool ordered = true;                     ///< batches and losses lie one after the other
};

/// The n-th batch or loss of the step lies `n` times its size from where the first does.
bool lies_at(subject const& s, schedule::operand const& o, std::uint64_t rank, std::uint64_t nth) {
  bool const several = s.facts.job.world > 1 && o.what == role::loss;
  std::uint64_t const own = several ? rank * s.facts.job.accumulate : 0;
  return o.offset == (own + nth) * o.bytes;
}

void count(subject const& s, program const& p, std::uint64_t rank, counted& sum) {
  for (schedule::instruction const& i : p.instructions) {
    auto const operands = p.operands_of(i);
    switch (i.op) {
      case opcode::batch_load:
        sum.ordered = sum.ordered && lies_at(s, operands[0], rank, sum.batches++);
        break;
      case opcode::loss_read:
        sum.ordered = sum.ordered && lies_at(s, operands[1], rank, sum.losses++);
        break;
      case opcode::forward:
        ++sum.forwards[i.block.index()];
        break;
      case opcode::backward:
        ++sum.backwards[i.block.index()];
        break;
      case opcode::accumulate:
        ++sum.sums[i.chunk.index()];
        break;
      case opcode::norm_finish:
        ++sum.finishes;
        break;
      case opcode::update:
        ++(i.version == 0 ? sum.left_over : sum.updates)[i.chunk.index()];
        break;
      default:
        break;
    }
  }
}

/// All programs of a step, as rank `rank` runs them.
counted count_step(subject const& s, bool resumed, std::uint64_t rank) {
  counted sum;
  sum.forwards.assign(s.facts.blocks.size(), 0);
  sum.backwards.assign(s.facts.blocks.size(), 0);
  sum.sums.assign(s.layout.chunks.size(), 0);
  sum.updates = sum.sums;
  sum.left_over = sum.sums;
  segment const begins = resumed ? segment::first_resumed : segment::first;
  for (segment const part : {begins, segment::middle, segment::last}) {
    program const* const p = s.find(part);
    for (std::uint64_t nth = 0; p != nullptr && nth < p->times; ++nth) {
      count(s, seen_by(*p, rank, nth), rank, sum);
    }
  }
  return sum;
}

TEST_CASE("the programs of a step add up to all of its micro-batches, once each and in order") {
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(400); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    std::uint64_t const all = s.facts.job.accumulate;
    std::vector<std::uint64_t> spans(s.layout.chunks.size(), 0);
    for (schedule::gradient_span const& each : s.p.spans) {
      ++spans[each.chunk.index()];
    }
    for (bool const resumed : {false, true}) {
      if (resumed && s.find(segment::first_resumed) == nullptr) {
        continue;
      }
      counted const sum = count_step(s, resumed, s.facts.job.world - 1);
      REQUIRE(sum.ordered);
      REQUIRE(sum.batches == (s.facts.batch.value > 0 ? all : 0));
      REQUIRE(sum.losses == all);
      REQUIRE(sum.finishes == 1);
      REQUIRE(std::ranges::count(sum.forwards, all) == std::ssize(s.facts.blocks));
      REQUIRE(std::ranges::count(sum.backwards, all) == std::ssize(s.facts.blocks));
      for (std::size_t c = 0; c < spans.size(); ++c) {
        bool const deferred = s.p.deferred[c] != 0;
        REQUIRE(sum.sums[c] == spans[c] * all);
        REQUIRE(sum.updates[c] == (spans[c] > 0 && !deferred ? 1U : 0U));
        REQUIRE(sum.left_over[c] == (resumed && deferred ? 1U : 0U));
      }
    }
  }
}

/// Of allocations that were placed: their largest end.
std::uint64_t extent(program const& p, space where) {
  std::uint64_t end = 0;
  for (schedule::allocation const& a : p.allocations) {
    end = std::max(end, a.where == where ? a.offset + granules(a.bytes) : 0);
  }
  return end;
}

TEST_CASE("every unroll of a job is accepted, and no program is larger than it says") {
  std::uint64_t whole = 0;
  std::uint64_t cut = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    for (std::uint32_t unroll = 1; unroll <= s.facts.job.accumulate; ++unroll) {
      CAPTURE(unroll);
      std::vector<program> const all = compile_all(s, unroll);
      REQUIRE(s.verify_all(all).ok);
      for (program const& p : all) {
        REQUIRE(p.micro_batches <= unroll);
        for (space const where : {space::device, space::host}) {
          REQUIRE(schedule::memory_of(p, where).peak == extent(p, where));
        }
        ++(schedule::whole(p.part) ? whole : cut);
      }
    }
  }
  CHECK(whole >= test::scaled(60));
  CHECK(cut > whole);
}

/// The instructions with what depends on the number of a step's micro-batches taken out: how long
/// the losses of all of them are.
std::vector<schedule::instruction> without_lengths(program const& p) {
  std::vector<schedule::instruction> out = p.instructions;
  for (schedule::instruction& i : out) {
    i.amount = i.op == opcode::loss_exchange ? 0 : i.amount;
  }
  return out;
}

TEST_CASE("programs don't grow with the micro-batches of a step") {
  constexpr std::array<std::array<std::uint64_t, 2>, 2> pairs{{{5, 1001}, {6, 1000}}};
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject s = make_job(seed);
    for (auto const [few, many] : pairs) {
      CAPTURE(many);
      s.facts.job.accumulate = few;
      std::vector<program> const a = compile_all(s, 2);
      s.facts.job.accumulate = many;
      std::vector<program> const b = compile_all(s, 2);
      REQUIRE(s.verify_all(b).ok);
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(name_of(a[i].part));
        REQUIRE(a[i].part == b[i].part);
        REQUIRE(a[i].micro_batches == b[i].micro_batches);
        REQUIRE(without_lengths(a[i]) == without_lengths(b[i]));
        REQUIRE(a[i].dependencies == b[i].dependencies);
        REQUIRE(a[i].operands.size() == b[i].operands.size());
        REQUIRE(a[i].allocations.size() == b[i].allocations.size());
        REQUIRE(schedule::memory_of(a[i], space::device) ==
                schedule::memory_of(b[i], space::device));
      }
    }
  }
}

// --- damaged programs ----------------------------------------------------------------------------

/// Damages a segment of one of `parts`.
template <std::size_t N, class Damage>
auto in(std::array<segment, N> const& parts, Damage const& damage) {
  return [=](subject& s, program& q) {
    std::vector<program const*> found;
    for (segment const part : parts) {
      if (program const* const p = s.find(part); p != nullptr) {
        found.push_back(p);
      }
    }
    if (found.empty()) {
      return false;
    }
    q = *found[s.dice.between(0, found.size() - 1)];
    return damage(s, q);
  };
}

template <class Damage>
auto in(segment part, Damage const& damage) {
  return in(std::array{part}, damage);
}

template <class Damage>
void refuse(char const* kind, std::initializer_list<rejection> expected, Damage const& damage) {
  test::refuse_each(kind, expected, first_seed, make_subject, damage);
}

/// The job's segments, with `q` in place of the one that it was.
std::vector<program> replaced(subject const& s, program const& q) {
  std::vector<program> all = s.segments;
  for (program& p : all) {
    if (p.part == q.part) {
      p = q;
    }
  }
  return all;
}

/// What verify_segments says of the damaged program among the others.
constexpr auto together = [](subject const& s, program const& q) {
  return s.verify_all(replaced(s, q));
};

/// Mutants that may be sound by themselves: segments of another cut or of other memory.
template <class Damage>
void refuse_together(char const* kind,
                     std::initializer_list<rejection> expected,
                     Damage const& damage) {
  test::refuse_each(kind, expected, first_seed, make_subject, damage, together);
}

TEST_CASE("a program that names other micro-batches of its step is refused") {
  refuse(
      "before, of first", {rejection::malformed}, in(beginning_parts, [](subject& s, program& q) {
        q.before += s.dice.between32(1, 3);
        return true;
      }));
  refuse("before, of last", {rejection::malformed}, in(segment::last, [](subject& s, program& q) {
           q.before = s.dice.chance(50) ? q.before - 1 : q.before + s.dice.between32(1, 3);
           return true;
         }));
  // A middle with fewer or more before it is one of another cut.
  refuse_together(
      "before, of middle", {rejection::malformed}, in(segment::middle, [](subject& s, program& q) {
        q.before = s.dice.chance(50) ? q.before - 1 : q.before + s.dice.between32(1, 3);
        return true;
      }));
  refuse("times, but of middle",
         {rejection::malformed},
         in(std::array{segment::first, segment::first_resumed, segment::last},
            [](subject& s, program& q) {
              q.times = s.dice.chance(50) ? 0 : s.dice.between32(2, 4);
              return true;
            }));
  refuse(
      "times, of middle", {rejection::malformed}, in(segment::middle, [](subject& s, program& q) {
        q.times = s.dice.chance(50) ? 0 : q.times + s.dice.between32(1, 3);
        return true;
      }));
  refuse("micro_batches",
         {rejection::malformed, rejection::missing_pass},
         in(cut_parts, [](subject& s, program& q) {
           q.micro_batches =
               s.dice.chance(50) ? q.micro_batches - 1 : q.micro_batches + s.dice.between32(1, 3);
           return true;
         }));
  refuse("micro_batches and before of last",
         {rejection::malformed,
          rejection::missing_pass,
          rejection::missing_accumulate,
          rejection::missing_result},
         in(segment::last, [](subject& s, program& q) {
           std::uint32_t const by = s.dice.between32(1, 2);
           bool const more = s.dice.chance(50) && q.before > by;
           q.micro_batches += more ? by : 0 - by;
           q.before -= more ? by : 0 - by;
           return true;
         }));
}

/// What the head of a `part` of the job says.
void set_head(subject const& s, program& q, segment part) {
  auto const all = static_cast<std::uint32_t>(s.facts.job.accumulate);
  q.part = part;
  q.micro_batches = schedule::whole(part) ? all : part == segment::evaluate ? 1 : 0;
  q.before = 0;
  q.times = 1;
  if (program const* const p = s.find(part)) {
    q.micro_batches = p->micro_batches;
    q.before = p->before;
    q.times = p->times;
  }
}

TEST_CASE("a part of a cut step isn't another one") {
  constexpr std::array all_parts{segment::step,
                                 segment::resume,
                                 segment::flush,
                                 segment::evaluate,
                                 segment::first,
                                 segment::first_resumed,
                                 segment::middle,
                                 segment::last};
  for (segment const from : cut_parts) {
    for (segment const to : all_parts) {
      if (from == to) {
        continue;
      }
      std::string const name = std::string(name_of(from)) + " as " + std::string(name_of(to));
      refuse(name.c_str(),
             {rejection::malformed,
              rejection::wrong_version,
              rejection::missing_pass,
              rejection::missing_update,
              rejection::double_update,
              rejection::missing_accumulate,
              rejection::double_accumulate,
              rejection::norm,
              rejection::missing_result},
             in(from, [from, to](subject& s, program& q) {
               bool const defers = std::ranges::find(q.deferred, 1) != q.deferred.end();
               if (s.dice.chance(30)) {
                 q.part = to;
               } else {
                 set_head(s, q, to);
               }
               // First and middle differ in nothing but their heads where they are as large, and
               // where nothing is left over there is nothing to resume.
               program const* const same = s.find(to);
               return (same == nullptr || q != *same) &&
                      (defers || q.part != segment::first_resumed || from != segment::first);
             }));
    }
  }
}

/// An operand that lies elsewhere in each repetition, and those like it.
std::vector<std::pair<std::uint32_t, std::size_t>> advancing(test::editable const& e) {
  std::vector<std::pair<std::uint32_t, std::size_t>> out;
  for (std::uint32_t i = 0; i < e.nodes.size(); ++i) {
    for (std::size_t k = 0; k < e.nodes[i].operands.size(); ++k) {
      if (e.nodes[i].operands[k].advance > 0) {
        out.emplace_back(i, k);
      }
    }
  }
  return out;
}

/// Changes one such operand.
template <class Change>
auto on_advancing(Change const& change) {
  return [=](subject& s, program& q) {
    test::editable e(q);
    auto const at = advancing(e);
    REQUIRE(!at.empty());
    auto const [i, k] = at[s.dice.between(0, at.size() - 1)];
    if (!change(s, e.nodes[i].operands[k])) {
      return false;
    }
    q = e.program();
    return true;
  };
}

TEST_CASE("batches and losses that advance otherwise are refused") {
  // What a first program says about it means nothing: no micro-batch ran before it.
  refuse("no advance",
         {rejection::malformed},
         in(later_parts, on_advancing([](subject&, schedule::operand& o) {
              o.advance = 0;
              return true;
            })));
  refuse("twice the advance",
         {rejection::malformed},
         in(later_parts, on_advancing([](subject&, schedule::operand& o) {
              o.advance *= 2;
              return true;
            })));
  refuse("advance off by 4",
         {rejection::malformed},
         in(later_parts, on_advancing([](subject& s, schedule::operand& o) {
              o.advance += s.dice.chance(50) ? 4U : 0U - 4U;
              return true;
            })));
  refuse("an advance that overflows",
         {rejection::malformed},
         in(later_parts, on_advancing([](subject& s, schedule::operand& o) {
              o.advance += std::uint64_t{1} << s.dice.between(62, 63);
              return true;
            })));
  refuse("another micro-batch's place",
         {rejection::malformed},
         in(cut_parts, on_advancing([](subject& s, schedule::operand& o) {
              std::uint64_t const by = s.dice.between(1, 2) * o.advance;
              o.offset = s.dice.chance(50) && o.offset >= by ? o.offset - by : o.offset + by;
              return true;
            })));
  // Where a middle runs once, an offset without an advance says the same.
  refuse("a place without an advance",
         {rejection::malformed},
         in(segment::middle, [](subject& s, program& q) {
           if (q.times == 1) {
             return false;
           }
           std::uint64_t const before = q.before;
           return on_advancing([before](subject&, schedule::operand& o) {
             o.offset += before * o.advance;
             o.advance = 0;
             return true;
           })(s, q);
         }));
  refuse("a place right the last time only",
         {rejection::malformed},
         in(segment::middle, [](subject& s, program& q) {
           if (q.times == 1) {
             return false;
           }
           std::uint64_t const before = q.before + (q.times - 1) * q.micro_batches;
           return on_advancing([before](subject&, schedule::operand& o) {
             o.offset += before * o.advance;
             o.advance = 0;
             return true;
           })(s, q);
         }));
}

TEST_CASE("losses with a stride of the program's micro-batches instead of the step's are refused") {
  refuse("stride of one program", {rejection::malformed}, in(cut_parts, [](subject& s, program& q) {
           std::uint64_t const stride = q.micro_batches * s.facts.job.micro_batch * 4;
           return on(of(opcode::loss_read), [=](subject&, test::editable& e, std::uint32_t at) {
             schedule::operand& o = e.nodes[at].operands[1];
             bool const several = o.stride > 0;
             o.stride = stride;
             return several;
           })(s, q);
         }));
}

TEST_CASE("contributions of every part of a step are added once") {
  refuse("missing accumulate, of first",
         {rejection::missing_accumulate},
         in(beginning_parts, on(of(opcode::accumulate), erase)));
  refuse("missing accumulate, later",
         {rejection::missing_accumulate},
         in(later_parts, on(of(opcode::accumulate), erase)));
  refuse("extra accumulate",
         {rejection::double_accumulate},
         in(cut_parts, on(of(opcode::accumulate), twice)));
  refuse(
      "missing reduce", {rejection::missing_reduce}, in(cut_parts, on(of(opcode::reduce), erase)));
  refuse("extra reduce", {rejection::double_reduce}, in(cut_parts, on(of(opcode::reduce), twice)));
}

bool zeroes_norm(schedule::instruction const& i) {
  return i.op == opcode::zero && i.amount == schedule::norm_cell_bytes && !i.span.valid();
}
bool zeroes_loss(schedule::instruction const& i) {
  return i.op == opcode::zero && i.amount < schedule::norm_cell_bytes && !i.span.valid();
}

TEST_CASE("what a step needs at its end is missed") {
  auto const without = [](auto const& wanted) { return in(segment::last, on(wanted, erase)); };
  refuse("no zero norm", {rejection::norm}, without(zeroes_norm));
  refuse("no norm_partial", {rejection::norm}, without(of(opcode::norm_partial)));
  refuse("no norm_read", {rejection::norm}, without(of(opcode::norm_read)));
  refuse("no norm_exchange", {rejection::norm}, without(of(opcode::norm_exchange)));
  refuse("no norm_finish",
         {rejection::missing_result, rejection::missing_input},
         without(of(opcode::norm_finish)));
  refuse("no scalars_upload", {rejection::missing_input}, without(of(opcode::scalars_upload)));
  refuse("no update",
         {rejection::missing_update, rejection::not_resident},  // nothing to gather
         without(of(opcode::update)));
  refuse("no loss_exchange", {rejection::missing_result}, without(of(opcode::loss_exchange)));
  refuse("an extra norm_finish",
         {rejection::norm},
         in(segment::last, on(of(opcode::norm_finish), twice)));
  refuse("an extra update",
         {rejection::double_update},
         in(segment::last, on(of(opcode::update), twice)));
}

TEST_CASE("losses are read in every part of a step") {
  refuse(
      "no loss_read", {rejection::missing_result}, in(cut_parts, on(of(opcode::loss_read), erase)));
  refuse("no zero loss", {rejection::missing_input}, in(cut_parts, on(zeroes_loss, erase)));
}

/// Copies an instruction that `wanted` accepts from segment `from` into the program, before
/// everything else or after it. Its operands must lie in carried memory.
template <class Wanted>
auto copied(segment from, Wanted const& wanted, bool at_end = true) {
  return [=](subject& s, program& q) {
    program const* const p = s.find(from);
    if (p == nullptr) {
      return false;
    }
    auto const at = test::positions(*p, wanted);
    if (at.empty()) {
      return false;
    }
    test::editable e(q);
    test::insert_alone(e, test::editable(*p).nodes[s.pick(at)], at_end);
    q = e.program();
    return true;
  };
}

TEST_CASE("what belongs to a step's end comes in no other part") {
  auto const early = [](auto const& wanted) {
    return in(open_parts, copied(segment::last, wanted));
  };
  refuse("update before the end", {rejection::double_update}, early(of(opcode::update)));
  refuse("norm_partial before the end",
         {rejection::missing_accumulate},
         early(of(opcode::norm_partial)));
  refuse("norm_finish before the end", {rejection::norm}, early(of(opcode::norm_finish)));
  refuse("loss_exchange before the end",
         {rejection::missing_result},
         early(of(opcode::loss_exchange)));
}

bool finishes_norm(schedule::instruction const& i) {
  return zeroes_norm(i) || i.op == opcode::norm_read || i.op == opcode::norm_exchange ||
         i.op == opcode::norm_finish;
}

TEST_CASE("a norm of no gradient isn't finished before a step's end") {
  refuse("norm before the end", {rejection::norm}, in(open_parts, [](subject& s, program& q) {
           program const& last = *s.find(segment::last);
           test::editable const from(last);
           test::editable e(q);
           for (std::uint32_t const at : test::positions(last, finishes_norm)) {
             test::insert_alone(e, from.nodes[at], true);
           }
           q = e.program();
           return true;
         }));
}

TEST_CASE("an update that was left over is carried out once, by the first program") {
  auto const missing = [](subject&, test::editable& e, std::uint32_t at) {
    e.erase(at);
    return true;
  };
  auto const last = [](subject&, test::editable& e, std::uint32_t at) {
    e.repeat_last(at);
    e.erase(at);
    return true;
  };
  refuse("left-over update missing",
         {rejection::wrong_version, rejection::missing_update},
         in(segment::first_resumed, on(left_over, missing)));
  refuse("left-over update twice",
         {rejection::double_update},
         in(segment::first_resumed, on(left_over, twice)));
  refuse("left-over update at the end",
         {rejection::wrong_version, rejection::double_accumulate, rejection::missing_accumulate},
         in(segment::first_resumed, on(left_over, last)));
  for (bool const at_end : {false, true}) {
    std::string const where = at_end ? "at the end of" : "at the start of";
    for (segment const part : {segment::first, segment::middle, segment::last}) {
      std::string const name = "left over, " + where + " " + std::string(name_of(part));
      refuse(name.c_str(),
             {rejection::wrong_version},
             in(part, copied(segment::first_resumed, left_over, at_end)));
    }
  }
}

TEST_CASE("parts of a step can't say otherwise what is deferred") {
  refuse_together("another deferral",
                  {rejection::malformed,
                   rejection::wrong_version,
                   rejection::missing_update,
                   rejection::double_update,
                   rejection::missing_accumulate,
                   rejection::double_accumulate},
                  in(cut_parts, [](subject& s, program& q) {
                    if (q.deferred.empty()) {
                      return false;
                    }
                    q.deferred[s.dice.between(0, q.deferred.size() - 1)] ^= 1U;
                    return true;
                  }));
}

// --- memory that programs of one step share ------------------------------------------------------

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

void shuffle(test::random_source& dice, std::vector<program>& all) {
  for (std::size_t i = all.size(); i > 1; --i) {
    std::swap(all[i - 1], all[dice.between(0, i - 1)]);
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
  auto const at = make_id<allocation_id>(q.allocations.size());
  q.allocations.push_back({.where = space::device,
                           .what = category::batch,
                           .offset = extent(q, space::device),
                           .bytes = size * (q.before + q.micro_batches * q.times),
                           .end = static_cast<std::uint32_t>(q.instructions.size())});
  for (schedule::operand& o : q.operands) {
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

// --- sets of programs ----------------------------------------------------------------------------

/// What became of sets of programs, by kind.
class sets {
 public:
  void refused(char const* kind, subject const& s, std::vector<program> const& all) {
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(kind);
    CAPTURE(v.what);
    CHECK(v.reason == rejection::malformed);
    by_[kind].add(v);
  }
  void accepted(char const* kind, subject const& s, std::vector<program> const& all) {
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(kind);
    CAPTURE(v.what);
    CHECK(v.ok);
    by_[kind].add(v);
  }
  void print_all(std::uint64_t least) const {
    for (auto const& [kind, sum] : by_) {
      sum.print(kind.c_str());
      CHECK(sum.accepted() + sum.rejected() >= least);
    }
  }

 private:
  std::map<std::string, tally> by_{};
};

/// Those of `all` that are one of `parts`, in the order of `parts`; empty if one is missing.
std::vector<program> chosen(std::vector<program> const& all, std::initializer_list<segment> parts) {
  std::vector<program> out;
  for (segment const part : parts) {
    for (program const& p : all) {
      if (p.part == part) {
        out.push_back(p);
      }
    }
  }
  return out.size() == parts.size() ? out : std::vector<program>{};
}

/// The program of another cut of the same step, instead of the job's own.
std::vector<program> with(std::vector<program> all, program const& other) {
  for (program& p : all) {
    if (p.part == other.part) {
      p = other;
    }
  }
  return all;
}

/// Sets that lack a program that the step needs.
void lacking(subject const& s, sets& out) {
  using enum segment;
  std::vector<program> const& all = s.segments;
  std::vector<program> const whole_step = chosen(all, {first, middle, last});
  out.accepted("all segments", s, all);
  if (whole_step.empty()) {
    out.accepted("first, last", s, chosen(all, {first, last}));
  } else {
    out.accepted("first, middle, last", s, whole_step);
    out.refused("middle missing", s, chosen(all, {first, last}));
    out.refused("first and last missing", s, chosen(all, {middle}));
    out.refused("first missing", s, chosen(all, {middle, last}));
    out.refused("last missing", s, chosen(all, {first, middle}));
    out.refused("middle twice", s, chosen(all, {first, middle, middle, last}));
  }
  out.refused("nothing but first", s, chosen(all, {first}));
  out.refused("nothing but last", s, chosen(all, {last}));
  out.refused("first twice", s, with(chosen(all, {first, first, last}), *s.find(last)));
  if (auto const most = chosen(all, {first, first_resumed, middle, last, flush, evaluate});
      !most.empty()) {
    out.accepted("first, resumed, middle, last, ...", s, most);
    out.accepted("resumed, middle, last", s, chosen(all, {first_resumed, middle, last}));
    out.refused("resumed without middle", s, chosen(all, {first, first_resumed, last}));
    out.refused("resumed without last", s, chosen(all, {first, first_resumed, middle}));
  }
}

/// Sets of programs of `all` and of another cut of the same step.
void mixed(subject const& s, std::vector<program> const& others, sets& out) {
  std::vector<program> const& all = s.segments;
  program const& first = *s.find(segment::first);
  program const* const middle = s.find(segment::middle);
  program const& last = *s.find(segment::last);
  for (program const& other : others) {
    if (schedule::whole(other.part)) {
      std::vector<program> more = all;
      more.push_back(other);
      out.refused(other.part == segment::step ? "first and step" : "first and resume", s, more);
      more.erase(more.begin());
      out.refused("a whole step without first", s, more);
    } else if (other.part == segment::first && other.micro_batches != first.micro_batches) {
      out.refused("another cut's first", s, with(all, other));
      std::vector<program> more = all;
      more.push_back(other);
      out.refused("firsts of two sizes", s, more);
    } else if (other.part == segment::first_resumed && other.micro_batches != first.micro_batches) {
      out.refused("another cut's resumed", s, with(all, other));
    } else if (other.part == segment::middle && middle != nullptr && other != *middle) {
      out.refused("another cut's middle", s, with(all, other));
    } else if (other.part == segment::middle && middle == nullptr) {
      std::vector<program> more = all;
      more.push_back(other);
      out.refused("a middle too many", s, more);
    } else if (other.part == segment::last && other.micro_batches != last.micro_batches) {
      out.refused("another cut's last", s, with(all, other));
    }
  }
}

/// A middle that runs more or fewer times than its step needs.
void miscounted(subject const& s, sets& out) {
  program const* const middle = s.find(segment::middle);
  if (middle == nullptr) {
    return;
  }
  program q = *middle;
  ++q.times;
  out.refused("middle once more", s, with(s.segments, q));
  q.times -= 2;
  out.refused("middle once less", s, with(s.segments, q));
}

TEST_CASE("a set of programs that isn't all of a step, once, is refused") {
  sets out;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(400); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    lacking(s, out);
    miscounted(s, out);
    auto const all = static_cast<std::uint32_t>(s.facts.job.accumulate);
    mixed(s, compile_all(s, all), out);
    mixed(s, compile_all(s, s.dice.between32(1, all - 1)), out);
  }
  out.print_all(test::scaled(400) / 20);
}

/// Micro-batch by micro-batch: whether the programs are those of one way to run steps.
bool adds_up(subject const& s, std::vector<program> const& all) {
  std::map<segment, program const*> by;
  for (program const& p : all) {
    if (!by.emplace(p.part, &p).second) {
      return false;
    }
  }
  auto const runs = [&](segment part, std::uint64_t& done) {
    if (!by.contains(part)) {
      return true;
    }
    program const& p = *by.at(part);
    bool const fits = p.before == done;
    done += std::uint64_t{p.micro_batches} * p.times;
    return fits;
  };
  bool any = false;
  for (segment const part :
       {segment::step, segment::resume, segment::first, segment::first_resumed}) {
    if (by.contains(part)) {
      std::uint64_t done = 0;
      bool const adjacent =
          runs(part, done) && runs(segment::middle, done) && runs(segment::last, done);
      if (!adjacent || done != s.facts.job.accumulate) {
        return false;
      }
      any = true;
    }
  }
  return any || (!by.contains(segment::middle) && !by.contains(segment::last));
}

/// Removes, adds or exchanges a program.
void edit(subject& s, std::vector<program>& all, std::vector<program> const& others) {
  program const& other = others[s.dice.between(0, others.size() - 1)];
  if (s.dice.chance(40) && !all.empty()) {
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(s.dice.between(0, all.size() - 1)));
  } else if (s.dice.chance(50)) {
    all = with(all, other);
  } else {
    all.push_back(other);
  }
}

TEST_CASE("random sets are accepted exactly where micro-batches add up") {
  std::array<std::uint64_t, 2> met{};
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(800); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    auto const most = static_cast<std::uint32_t>(s.facts.job.accumulate);
    std::vector<program> all = s.segments;
    for (std::uint64_t edits = s.dice.between(0, 3); edits > 0; --edits) {
      edit(s, all, compile_all(s, s.dice.between32(1, most)));
    }
    shuffle(s.dice, all);
    bool const right = adds_up(s, all);
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(v.what);
    CHECK(v.ok == right);
    CHECK((v.ok || v.reason == rejection::malformed));
    ++met[right ? 1 : 0];
  }
  CHECK(met[0] > test::scaled(800) / 8);
  CHECK(met[1] > test::scaled(800) / 8);
}

}  // namespace

}  // namespace cut_mutants_test
