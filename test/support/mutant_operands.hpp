// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kinds of single edits, continued: what an instruction works on.

#include "protrain/core/math.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/mutant_edits.hpp"
#include "test/support/mutant_kinds.hpp"
#include "test/support/never_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::test {

inline constexpr std::size_t roles = static_cast<std::size_t>(schedule::role::report) + 1;

/// What an instruction works on.
inline std::vector<mutant_kind> operand_kinds() {
  using schedule::instruction;
  using schedule::operand;
  return {
      {"another role",
       "one that the executor treats alike",
       [](draft& d) {
         return on_operand(d, any_operand, [](draft& of, editable&, std::uint32_t, operand& o) {
           o.what = another_of(of.dice, o.what, roles);
           return true;
         });
       }},
      {"another access",
       "more than is needed, or less in a place that nobody else touches",
       [](draft& d) {
         return on_operand(d, any_operand, [](draft& of, editable&, std::uint32_t, operand& o) {
           o.mode = another_of(of.dice, o.mode, 3);
           return true;
         });
       }},
      {"another allocation",
       "memory that nobody uses at the time",
       [](draft& d) {
         return on_operand(
             d, any_operand, [](draft& of, editable& e, std::uint32_t at, operand& o) {
               auto const& all = e.frame.allocations;
               std::vector<allocation_id> fit;
               for (std::size_t a = 0; a < all.size(); ++a) {
                 if (all[a].where == all[o.allocation.index()].where && all[a].begin <= at &&
                     at < all[a].end && o.offset + o.bytes <= all[a].bytes &&
                     a != o.allocation.index()) {
                   fit.push_back(make_id<allocation_id>(a));
                 }
               }
               if (fit.empty()) {
                 return false;
               }
               o.allocation = fit[of.dice.between(0, fit.size() - 1)];
               return true;
             });
       }},
      {"another offset",
       "memory that nobody uses at the time",
       [](draft& d) {
         return on_operand(d, any_operand, [](draft& of, editable& e, std::uint32_t, operand& o) {
           std::uint64_t const room = e.frame.allocations[o.allocation.index()].bytes - o.bytes;
           std::uint64_t const by = of.dice.chance(50) ? address_granule : o.bytes;
           std::uint64_t const now = of.dice.chance(30) ? room : o.offset + by;
           bool const changes = now != o.offset;
           o.offset = now;
           return changes;
         });
       }},
      {"fewer or more bytes",
       "the executor knows the size, and the bytes beyond are nobody's",
       [](draft& d) {
         return on_operand(d, any_operand, [](draft& of, editable&, std::uint32_t, operand& o) {
           bool const more = of.dice.chance(40);
           std::uint64_t const by = of.dice.chance(50) ? 4 : of.dice.between(1, o.bytes);
           o.bytes = more ? o.bytes + by : o.bytes - std::min(o.bytes, by);
           return true;
         });
       }},
      {"another stride",
       "on the rank that looks it is the same place, or memory that nobody uses",
       [](draft& d) {
         return on_operand(
             d,
             [](operand const& o) { return o.stride > 0; },
             [](draft& of, editable&, std::uint32_t, operand& o) {
               o.stride = of.dice.chance(40)   ? 0
                          : of.dice.chance(50) ? 2 * o.stride
                                               : o.stride - address_granule / 64;
               return true;
             });
       },
       reach::some,
       true},
      {"another advance",
       "memory of another micro-batch with the same bytes",
       [](draft& d) {
         return on_operand(
             d,
             [&](operand const& o) { return o.advance > 0 && d.sound().before > 0; },
             [](draft& of, editable&, std::uint32_t, operand& o) {
               o.advance = of.dice.chance(40)   ? 0
                           : of.dice.chance(50) ? 2 * o.advance
                                                : o.advance - 4;
               return true;
             });
       }},
      {"another chunk of an operand",
       "a label where the instruction names the chunk",
       [](draft& d) {
         return on_operand(
             d,
             [](operand const& o) { return o.chunk.valid(); },
             [](draft& of, editable&, std::uint32_t, operand& o) {
               o.chunk = another_id(of.dice, o.chunk, of.job.layout.chunks.size());
               return true;
             });
       }},
      {"another span of an operand",
       "a label: instructions name their span",
       [](draft& d) {
         return on_operand(
             d,
             [](operand const& o) { return o.span.valid(); },
             [](draft& of, editable& e, std::uint32_t, operand& o) {
               o.span = another_id(of.dice, o.span, e.frame.spans.size());
               return true;
             });
       },
       reach::labels},
      {"drop an operand",
       "the executor does without it",
       [](draft& d) {
         return on_operand(d, any_operand, [](draft&, editable& e, std::uint32_t at, operand& o) {
           auto& all = e.nodes[at].operands;
           all.erase(all.begin() + (&o - all.data()));
           return true;
         });
       }},
      {"double an operand",
       "the executor takes the first of its role",
       [](draft& d) {
         bool const copies = d.dice.chance(80);  // others find theirs by role
         return on_instruction(
             d,
             [=](instruction const& i) {
               return i.operand_count > 0 && (!copies || detail::copies(i.op));
             },
             [](draft& of, editable& e, std::uint32_t at) {
               auto& all = e.nodes[at].operands;
               std::size_t const one = of.dice.between(0, all.size() - 1);
               operand const copy = all[one];
               all.insert(all.begin() + static_cast<std::ptrdiff_t>(one), copy);
               return true;
             });
       }},
      {"swap two operands",
       "the executor finds its operands by role",
       [](draft& d) {
         bool const copies = d.dice.chance(80);  // others find theirs by role
         return on_instruction(
             d,
             [=](instruction const& i) {
               return i.operand_count > 1 && (!copies || detail::copies(i.op));
             },
             [](draft& of, editable& e, std::uint32_t at) {
               auto& all = e.nodes[at].operands;
               std::size_t const one = of.dice.between(0, all.size() - 1);
               std::swap(all[one], all[another(of.dice, one, all.size())]);
               return true;
             });
       }},
  };
}

}  // namespace protrain::test
