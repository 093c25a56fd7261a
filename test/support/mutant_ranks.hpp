// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kinds of single edits, continued: what one rank does otherwise than the others.

#include "protrain/schedule/program.hpp"
#include "test/support/mutant_edits.hpp"
#include "test/support/mutant_kinds.hpp"

#include <cstdint>
#include <vector>

namespace protrain::test {

inline constexpr auto collective = [](schedule::instruction const& i) {
  using schedule::opcode;
  return i.op == opcode::reduce || i.op == opcode::gather || i.op == opcode::norm_exchange ||
         i.op == opcode::loss_exchange;
};

inline void on_one_rank(draft& d) {
  d.rank = d.dice.between32(0, static_cast<std::uint32_t>(d.job.ranks() - 1));
}

/// What one rank does otherwise than the others: sound by itself at times.
inline std::vector<mutant_kind> rank_kinds() {
  return {
      {"collectives in another order on one rank",
       "sound alone, and the others don't notice",
       [](draft& d) {
         on_one_rank(d);
         return on_instruction(d, collective, exchanged);
       },
       reach::some,
       true},
      {"a collective at another place on one rank",
       "sound alone, and the others don't notice",
       [](draft& d) {
         on_one_rank(d);
         return on_instruction(d, collective, moved);
       },
       reach::some,
       true},
      {"a collective less on one rank",
       "sound alone, and the others don't notice",
       [](draft& d) {
         on_one_rank(d);
         return on_instruction(d, collective, erased);
       },
       reach::some,
       true},
      {"a collective more on one rank",
       "sound alone, and the others don't notice",
       [](draft& d) {
         on_one_rank(d);
         return on_instruction(d, collective, doubled);
       },
       reach::some,
       true},
      {"something less on one rank",
       "sound alone, and the others don't notice",
       [](draft& d) {
         on_one_rank(d);
         return on_instruction(d, anything, erased);
       },
       reach::some,
       true},
  };
}

}  // namespace protrain::test
