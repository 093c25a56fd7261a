// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kinds of single edits that damage a program. Another kind is another entry of a list.

#include "protrain/core/math.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/mutant_edits.hpp"
#include "test/support/mutants.hpp"
#include "test/support/never_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::test {

enum class reach : std::uint8_t {
  some,    ///< some of its mutants do harm
  each,    ///< likewise, drawn for one opcode after the other
  labels,  ///< no mutant does: it changes what nothing that runs looks at
};

struct mutant_kind {
  char const* name;
  char const* spared;    ///< why a mutant that is refused may do no harm; null where each does
  bool (*edit)(draft&);  ///< false where the job has nothing to damage
  reach harm = reach::some;
  bool several_ranks = false;
};

/// Who waits for whom, and in which order.
inline std::vector<mutant_kind> order_kinds() {
  using schedule::opcode;
  return {
      {"drop a dependency",
       "an order that only verify wants: of a rank's own part, which a gather just reads",
       [](draft& d) {
         return on_instruction(
             d,
             [](auto const& i) { return i.dependency_count > 0; },
             [](draft& of, editable& e, std::uint32_t at) {
               auto& all = e.nodes[at].dependencies;
               all.erase(all.begin() +
                         static_cast<std::ptrdiff_t>(of.dice.between(0, all.size() - 1)));
               return true;
             });
       }},
      {"wait for another one instead",
       "an order that only verify wants: of a rank's own part, which a gather just reads",
       [](draft& d) {
         return on_instruction(
             d,
             [](auto const& i) { return i.dependency_count > 0; },
             [](draft& of, editable& e, std::uint32_t at) {
               auto& all = e.nodes[at].dependencies;
               std::uint32_t& one = all[of.dice.between(0, all.size() - 1)];
               one = static_cast<std::uint32_t>(another(of.dice, one, e.nodes.size()));
               return true;
             });
       }},
      {"swap neighbours",
       "they commute, yet what the program says of memory is of the old positions",
       [](draft& d) { return on_instruction(d, anything, swapped); }},
      {"swap two of a queue",
       "they commute, yet what the program says of memory is of the old positions",
       [](draft& d) { return on_instruction(d, anything, exchanged); }},
      {"move to another place",
       "nothing in between cares, yet what the program says of memory does",
       [](draft& d) { return on_instruction(d, is(d.turn), moved); },
       reach::each},
      {"move to another queue",
       "this device plays any queue, and the order was given anyway",
       [](draft& d) {
         return on_instruction(d, is(d.turn), [](draft& of, editable& e, std::uint32_t at) {
           queue_id& q = e.nodes[at].self.queue;
           q = another_of(of.dice, q, queue_count);
           return true;
         });
       },
       reach::each},
      {"update after what reads its values",
       "a chunk whose first use is in an evaluation, or whose update is none",
       [](draft& d) {
         return on_instruction(
             d,
             [](auto const& i) { return i.op == opcode::update && i.version == 0; },
             [](draft&, editable& e, std::uint32_t at) {
               chunk_id const c = e.nodes[at].self.chunk;
               for (auto i = at + 1; i < e.nodes.size(); ++i) {
                 auto const& all = e.nodes[i].operands;
                 if (std::ranges::any_of(all, [&](schedule::operand const& o) {
                       return o.what == schedule::role::value && o.chunk == c;
                     })) {
                   e.move(at, i);
                   e.nodes[i].dependencies.push_back(i - 1);
                   return true;
                 }
               }
               return false;
             });
       }},
  };
}

/// Instructions too few, too many, or others.
inline std::vector<mutant_kind> presence_kinds() {
  using schedule::opcode;
  return {
      {"drop",
       "what it does was done already, or is of no use here: an oversight all the same",
       [](draft& d) { return on_instruction(d, is(d.turn), erased); },
       reach::each},
      {"double",
       "done twice with the same bytes; or nothing the second time, as on one rank",
       [](draft& d) { return on_instruction(d, is(d.turn), doubled); },
       reach::each},
      {"repeat later",
       "done twice with the same bytes; or nothing the second time, as on one rank",
       [](draft& d) { return on_instruction(d, is(d.turn), repeated); },
       reach::each},
      {"another opcode",
       "one that does the same to these operands",
       [](draft& d) {
         return on_instruction(d, is(d.turn), [](draft& of, editable& e, std::uint32_t at) {
           opcode& op = e.nodes[at].self.op;
           op = another_of(of.dice, op, schedule::opcode_count);
           return true;
         });
       },
       reach::each},
      {"skip a reduce",
       "the other ranks' part is zero, or the sum rounds to a rank's own",
       [](draft& d) { return on_instruction(d, is(opcode::reduce), erased); },
       reach::some,
       true},
      {"double a reduce",
       "the other ranks' part is zero, or the sum rounds to a rank's own",
       [](draft& d) { return on_instruction(d, is(opcode::reduce), doubled); },
       reach::some,
       true},
      {"skip an accumulate",
       "a contribution of zeros",
       [](draft& d) { return on_instruction(d, is(opcode::accumulate), erased); }},
      {"double an accumulate",
       "the first contribution is stored, not added: twice is once",
       [](draft& d) { return on_instruction(d, is(opcode::accumulate), doubled); }},
      {"skip an update",
       "a chunk without elements on this rank",
       [](draft& d) { return on_instruction(d, is(opcode::update), erased); }},
      {"double an update",
       "a chunk without elements on this rank",
       [](draft& d) { return on_instruction(d, is(opcode::update), doubled); }},
  };
}

/// Applies an update, or a part of one.
inline constexpr auto steps = [](schedule::instruction const& i) {
  return i.op == schedule::opcode::update || i.op == schedule::opcode::update_part;
};

/// What an instruction says of itself.
inline std::vector<mutant_kind> field_kinds() {
  using schedule::instruction;
  using schedule::opcode;
  return {
      {"wrong version",
       "a label, but for updates that were left over",
       [](draft& d) {
         // Of all versions only that an update was left over is more than a label.
         return d.dice.chance(85)
                    ? on_instruction(d,
                                     steps,
                                     [](draft&, editable& e, std::uint32_t at) {
                                       e.nodes[at].self.version ^= 1U;
                                       return true;
                                     })
                    : on_instruction(d, anything, [](draft& of, editable& e, std::uint32_t at) {
                        std::uint32_t& v = e.nodes[at].self.version;
                        v = static_cast<std::uint32_t>(another(of.dice, v, 4));
                        return true;
                      });
       }},
      {"wrong amount",
       "norms, sums, updates and collectives of one rank know their sizes",
       [](draft& d) {
         return on_instruction(
             d,
             [](instruction const& i) { return i.amount > 0; },
             [](draft& of, editable& e, std::uint32_t at) {
               std::uint64_t& n = e.nodes[at].self.amount;
               std::uint64_t const before = n;
               switch (of.dice.between(0, 4)) {
                 case 0:
                   n = 0;
                   break;
                 case 1:
                   n /= 2;
                   break;
                 case 2:
                   n *= 2;
                   break;
                 case 3:
                   n -= std::min<std::uint64_t>(n, 4);
                   break;
                 default:
                   n = e.nodes[of.dice.between(0, e.nodes.size() - 1)].self.amount;
                   break;
               }
               return n != before;
             });
       }},
      {"wrong chunk",
       "a label of this instruction; or a chunk of the same shape that names its memory",
       [](draft& d) {
         bool const works = d.dice.chance(70);  // others only have it as a label
         return on_instruction(
             d,
             [=](instruction const& i) {
               return i.chunk.valid() && (!works || detail::works_on_chunk(i.op));
             },
             [](draft& of, editable& e, std::uint32_t at) {
               chunk_id& c = e.nodes[at].self.chunk;
               c = another_id(of.dice, c, of.job.layout.chunks.size());
               return true;
             });
       }},
      {"wrong span",
       "a label of this instruction; or a span of the same tensors",
       [](draft& d) {
         bool const adds = d.dice.chance(80);  // others only have it as a label
         return on_instruction(
             d,
             [=](instruction const& i) {
               return i.span.valid() && (!adds || i.op == opcode::accumulate);
             },
             [](draft& of, editable& e, std::uint32_t at) {
               instruction& i = e.nodes[at].self;
               i.span = another_id(of.dice, i.span, e.frame.spans.size());
               i.chunk = of.dice.chance(70) ? e.frame.spans[i.span.index()].chunk : i.chunk;
               return true;
             });
       }},
      {"wrong part",
       "a label but for updates, which find their tensors by it",
       [](draft& d) {
         bool const applies = d.dice.chance(80);
         return on_instruction(
             d,
             [=](instruction const& i) {
               return i.op == opcode::update_part ||
                      (!applies && (i.op == opcode::state_in || i.op == opcode::state_out));
             },
             [](draft& of, editable& e, std::uint32_t at) {
               std::uint32_t& part = e.nodes[at].self.part;
               part = of.dice.chance(50) && part > 0 ? part - 1 : part + 1;
               return true;
             });
       }},
      {"wrong level",
       "a level that drops the same as another one of this block",
       [](draft& d) {
         auto const levels = [&](instruction const& i) {
           return detail::passes(i.op) && i.op != opcode::recompute
                      ? d.job.model.facts.shape(i.block).levels.size()
                      : 0;
         };
         return on_instruction(
             d,
             [&](instruction const& i) { return levels(i) > 0; },
             [&](draft& of, editable& e, std::uint32_t at) {
               instruction& i = e.nodes[at].self;
               i.level = static_cast<std::uint32_t>(another(of.dice, i.level, levels(i) + 1));
               return true;
             });
       }},
      {"wrong block",
       "blocks of one shape and no parameters; or a label",
       [](draft& d) {
         return on_instruction(
             d,
             [](instruction const& i) { return i.block.valid(); },
             [](draft& of, editable& e, std::uint32_t at) {
               block_id& b = e.nodes[at].self.block;
               b = another_id(of.dice, b, of.job.model.facts.blocks.size());
               return true;
             });
       }},
      {"wrong micro-batch",
       "a label of this instruction; or nothing random in the block",
       [](draft& d) {
         bool const runs = d.dice.chance(80);  // others only have it as a label
         return on_instruction(
             d,
             [=](instruction const& i) {
               return !runs || detail::passes(i.op) || i.op == opcode::accumulate;
             },
             [](draft& of, editable& e, std::uint32_t at) {
               std::uint32_t& m = e.nodes[at].self.micro_batch;
               m = static_cast<std::uint32_t>(
                   another(of.dice, m, std::max<std::uint64_t>(2, of.sound().micro_batches)));
               return true;
             });
       }},
  };
}

}  // namespace protrain::test
