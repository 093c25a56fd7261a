// SPDX-License-Identifier: Apache-2.0
// Damaged programs of steps that are cut: refused for the right reason.

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

namespace cut_mutants_test {

namespace {

using namespace protrain;
using namespace test::cut;

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
              rejection::missing_input,  // scalars of the step before
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

}  // namespace

}  // namespace cut_mutants_test
