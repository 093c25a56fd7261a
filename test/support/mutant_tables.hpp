// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kinds of single edits, continued: memory, and what a program says of itself.

#include "protrain/core/math.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/mutant_edits.hpp"
#include "test/support/mutant_kinds.hpp"
#include "test/support/mutants.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::test {

/// What the engine looks for by its label.
inline constexpr auto kept = [](schedule::allocation const& a) {
  return a.carried && a.chunk.valid() &&
         (a.what == category::parameters || a.what == category::optimizer);
};

/// The last to touch `before` and the first to touch `after` aren't of one queue.
inline bool meet_on_other_queues(schedule::program const& p,
                                 std::size_t before,
                                 std::size_t after) {
  schedule::instruction const* last = nullptr;
  for (schedule::instruction const& i : p.instructions) {
    for (schedule::operand const& o : p.operands_of(i)) {
      if (o.allocation.index() == after) {
        return last != nullptr && last->queue != i.queue;
      }
      last = o.allocation.index() == before ? &i : last;
    }
  }
  return false;
}

/// Lays some own memory, from number `first` on, where earlier memory lies that another queue was
/// the last to use; never onto what is live at the same time.
inline bool reuse_early(draft& d, std::size_t first) {
  std::size_t const n = d.p.allocations.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t const at = (first + k) % n;
    schedule::allocation& a = d.p.allocations[at];
    std::uint64_t const place = a.offset;
    for (std::size_t b = at; b-- > 0 && !a.carried;) {
      schedule::allocation const& before = d.p.allocations[b];
      if (before.where == a.where && before.end <= a.begin && before.offset != place &&
          meet_on_other_queues(d.p, b, at)) {
        a.offset = before.offset;
        if (!overlaps(d.p)) {
          return true;
        }
        a.offset = place;
      }
    }
  }
  return false;
}

/// Memory: when it is live, where, and what for.
inline std::vector<mutant_kind> memory_kinds() {
  return {
      {"reuse a range early",
       "bytes that meet only where an instruction just passes over them",
       [](draft& d) { return on_allocation(d, own_memory, reuse_early); }},
      {"place onto live memory",
       nullptr,
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           std::vector<std::uint64_t> live;
           for (schedule::allocation const& b : of.p.allocations) {
             if (b.where == a.where && b.begin < a.end && a.begin < b.end && b.offset != a.offset) {
               live.push_back(b.offset);
             }
           }
           if (live.empty()) {
             return false;
           }
           a.offset = live[of.dice.between(0, live.size() - 1)];
           return true;
         });
       }},
      {"take memory too late",
       "before its first use, but after what is listed later",
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           a.begin += of.dice.between32(1, 6);
           return a.begin < a.end;
         });
       }},
      {"give memory back too early",
       "after its last use",
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           a.end -= std::min(a.end, of.dice.between32(1, 6));
           return a.begin < a.end;
         });
       }},
      {"take memory too early",
       "out of the order of the table, which took it late enough",
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           a.begin -= std::min(a.begin, of.dice.between32(1, 30));
           return true;
         });
       }},
      {"give memory back too late",
       "meets only what nobody uses",
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           auto const n = static_cast<std::uint32_t>(of.p.instructions.size());
           a.end = std::min(n, a.end + of.dice.between32(1, 30));
           return true;
         });
       }},
      {"leak",
       nullptr,
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           auto const n = static_cast<std::uint32_t>(of.p.instructions.size());
           of.p.allocations[at].end = n + of.dice.between32(1, 3);
           return true;
         });
       }},
      {"hand out and free twice",
       "memory that is handed out again when its last use is over",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           schedule::allocation again = of.p.allocations[at];
           again.begin = of.dice.between32(again.begin, again.end - 1);
           again.end = of.dice.between32(again.begin + 1, again.end);
           insert_allocation(of.p, again);
           return true;
         });
       }},
      {"more bytes",
       "of a home or a shared place, whose size is known",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           of.p.allocations[at].bytes += address_granule * of.dice.between(1, 8);
           return true;
         });
       }},
      {"fewer bytes",
       "of which none was used",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           std::uint64_t& n = of.p.allocations[at].bytes;
           n -= of.dice.chance(50) ? std::min<std::uint64_t>(n, 4) : of.dice.between(1, n);
           return true;
         });
       }},
      {"the other space",
       "a cell of the host on the device or the other way: both are host memory here",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           space& where = of.p.allocations[at].where;
           where = where == space::host ? space::device : space::host;
           return true;
         });
       }},
      {"another category",
       "a label of a home that no run reads",
       [](draft& d) {
         return on_first_segment(d, kept, [](draft& of, std::size_t at) {
           category& what = of.p.allocations[at].what;
           what = another_of(of.dice, what, category_count);
           return true;
         });
       }},
      {"carried or not",
       "carried by one segment only, where nobody looks",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           of.p.allocations[at].carried = !of.p.allocations[at].carried;
           return true;
         });
       }},
      {"another chunk's home",
       "homes are looked up in the first segment",
       [](draft& d) {
         return on_first_segment(d, kept, [](draft& of, std::size_t at) {
           chunk_id& c = of.p.allocations[at].chunk;
           c = another_id(of.dice, c, of.job.layout.chunks.size());
           return true;
         });
       }},
      {"allocations in another order",
       "taken late, but before its first use",
       [](draft& d) {
         return on_allocation(d, any_memory, [](draft& of, std::size_t at) {
           std::size_t const n = of.p.allocations.size();
           std::size_t const to = of.dice.chance(50) ? std::min(n - 1, at + of.dice.between(1, 9))
                                                     : at - std::min(at, of.dice.between(1, 9));
           move_allocation(of.p, at, to);
           return true;
         });
       }},
      {"labels of memory",
       nullptr,
       [](draft& d) {
         return on_allocation(d, own_memory, [](draft& of, std::size_t at) {
           schedule::allocation& a = of.p.allocations[at];
           std::size_t const blocks = of.job.model.facts.blocks.size();
           a.block = make_id<block_id>(of.dice.between(0, blocks - 1));
           a.micro_batch += of.dice.between32(0, 2);
           a.chunk = make_id<chunk_id>(of.dice.between(0, of.job.layout.chunks.size() - 1));
           return true;
         });
       },
       reach::labels},
  };
}

/// What a program says of itself.
inline std::vector<mutant_kind> head_kinds() {
  using schedule::program;
  return {
      {"said to be another segment",
       "a segment that runs alike here",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           p.part = another_of(of.dice, p.part, schedule::segment_count);
           return true;
         });
       }},
      {"another segment in its place",
       "a segment that runs alike here",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           program const own = p;
           p = of.job.segments[another(of.dice, of.segment, of.job.segments.size())];
           p.part = own.part;
           if (of.dice.chance(50)) {
             p.micro_batches = own.micro_batches;
             p.before = own.before;
             p.times = own.times;
           }
           return true;
         });
       }},
      {"other micro-batches",
       "what nothing that runs looks at in this segment",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           std::uint32_t const by = of.dice.between32(1, 2);
           std::uint64_t const which = of.dice.between(0, 9);
           if (which == 0) {  // what compile and verify go by; the engine where a program repeats
             p.micro_batches = of.dice.chance(50) ? p.micro_batches + by : 0;
           } else if (which < 3) {
             p.times = of.dice.chance(50) ? p.times + by : p.times - 1;
           } else {
             p.before = of.dice.chance(50) ? p.before + by : p.before - std::min(p.before, by);
           }
           return true;
         });
       }},
      {"deferred or not",
       "the engine goes by the first segment",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           p.deferred[of.dice.between(0, p.deferred.size() - 1)] ^= 1U;
           return true;
         });
       }},
      {"other parts",
       "of a segment that streams nothing",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           auto const streams = [](std::uint64_t each) { return each > 0; };
           auto const count = std::ranges::count_if(p.part_elements, streams);
           if (count == 0) {
             return false;
           }
           auto at = std::ranges::find_if(p.part_elements, streams);
           for (auto skip = of.dice.between(1, static_cast<std::uint64_t>(count)); --skip > 0;) {
             at = std::find_if(at + 1, p.part_elements.end(), streams);
           }
           *at = of.dice.chance(30) ? 0 : of.dice.chance(50) ? 2 * *at : *at / 2;
           return true;
         });
       }},
      {"other spans",
       "of a segment that adds nothing up",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           schedule::gradient_span& s = p.spans[of.dice.between(0, p.spans.size() - 1)];
           switch (of.dice.between(0, 3)) {
             case 0:
               s.tensors.pop_back();
               break;
             case 1:
               s.tensors[of.dice.between(0, s.tensors.size() - 1)].first ^= true;
               break;
             case 2:
               s.blocks.pop_back();
               break;
             default: {
               auto& t = s.tensors[of.dice.between(0, s.tensors.size() - 1)].tensor;
               std::size_t const n = of.job.layout[s.chunk].tensors.size();
               t = static_cast<std::uint32_t>(another(of.dice, t, n));
               break;
             }
           }
           return true;
         });
       }},
      {"an operand that no instruction has",
       "of the caller's own memory, or of a segment that is asked before another one",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           using schedule::role;
           constexpr std::array callers{role::batch, role::loss, role::report, role::scalars};
           std::size_t const n = p.allocations.size();
           auto const at = make_id<allocation_id>(of.dice.between(0, n - 1));
           schedule::allocation const& a = p.allocations[at.index()];
           p.operands.push_back(
               {.what = callers[of.dice.between(0, 3)], .allocation = at, .bytes = a.bytes});
           return a.carried && a.where == space::host;
         });
       }},
      {"for another number of ranks",
       "of a segment without collectives",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           p.ranks = of.dice.chance(50) ? p.ranks + of.dice.between(1, 3) : p.ranks - 1;
           return true;
         });
       },
       reach::some,
       true},
      {"of another job",
       "a label once the engine has seen it",
       [](draft& d) {
         return on_head(d, [](draft& of, program& p) {
           p.fingerprint ^= std::uint64_t{1} << of.dice.between(0, 63);
           return true;
         });
       },
       reach::labels},
  };
}

}  // namespace protrain::test
