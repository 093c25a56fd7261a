// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who holds the bytes that are live at one position of a program. Addresses are part of a program,
// so this needs no run.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/text.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/print.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::schedule {

/// One allocation that is live.
struct holder {
  allocation_id id{};
  category what = category::scratch;
  role tensor = role::scratch;  ///< what it is to the first instruction that touches it
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< as asked for
  block_id block{};         ///< whose tensor it is, where that makes sense
  chunk_id chunk{};         ///< likewise; of a parameter buffer, the one that lies in it then
  std::uint32_t micro_batch = 0;
  std::uint32_t since = 0;     ///< instruction before which it was taken
  opcode born = opcode::zero;  ///< what that instruction is
  std::uint32_t until = 0;     ///< and before which it is given back
  bool carried = false;        ///< from step to step
  bool operator==(holder const&) const = default;
};

/// Everything that is live in one space before the instruction at `position`.
struct memory_holders {
  space where = space::device;
  segment part = segment::step;
  std::uint32_t position = 0;
  instruction at{};       ///< the instruction at `position`; empty behind the last one
  std::uint64_t top = 0;  ///< largest end of an allocation that is live
  /// Sums of the holders; padding is what rounding adds, fragmentation what lies below `top` and
  /// belongs to nobody. They sum to `top`, and at a peak they are memory_report::at_peak.
  std::array<std::uint64_t, category_count> by_category{};
  std::vector<holder> all{};  ///< largest first, then by address
  bool operator==(memory_holders const&) const = default;
};

namespace detail {

/// Names each holder by the operands of its life: O(operands).
constexpr void name_holders(memory_holders& out, program const& p) {
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::vector<std::uint32_t> row(p.allocations.size(), none);
  std::vector<std::uint8_t> touched(out.all.size(), 0);
  for (std::uint32_t k = 0; k < out.all.size(); ++k) {
    row[out.all[k].id.index()] = k;
  }
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    for (operand const& o : p.operands_of(p.instructions[i])) {
      std::uint32_t const k = row[o.allocation.index()];
      if (k == none) {
        continue;
      }
      holder& h = out.all[k];
      h.tensor = touched[k] == 0 ? o.what : h.tensor;
      touched[k] = 1;
      bool const moves_in = h.what == category::parameter_buffers && i <= out.position;
      h.chunk = moves_in && o.chunk.valid() ? o.chunk : h.chunk;
    }
  }
}

}  // namespace detail

/// Who holds memory of space `where` before the instruction at `position`, which is at most the
/// number of instructions. `p` is a program that verify accepts. O(operands + n log n) for n
/// allocations.
constexpr memory_holders holders(program const& p, space where, std::uint32_t position) {
  PROTRAIN_EXPECT(position <= p.instructions.size(), "holders: no such position");
  memory_holders out{.where = where, .part = p.part, .position = position};
  if (position < p.instructions.size()) {
    out.at = p.instructions[position];
  }
  std::uint64_t rounded = 0;
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    allocation const& a = p.allocations[i];
    if (a.where != where || a.begin > position || a.end <= position) {
      continue;
    }
    std::uint64_t const size = granules(a.bytes);
    rounded += size;
    out.top = std::max(out.top, a.offset + size);
    out.by_category[static_cast<std::size_t>(a.what)] += a.bytes;
    out.by_category[static_cast<std::size_t>(category::padding)] += size - a.bytes;
    out.all.push_back(
        {.id = make_id<allocation_id>(i),
         .what = a.what,
         .offset = a.offset,
         .bytes = a.bytes,
         .block = a.block,
         .chunk = a.chunk,
         .micro_batch = a.micro_batch,
         .since = a.begin,
         .born = a.begin < p.instructions.size() ? p.instructions[a.begin].op : opcode::zero,
         .until = a.end,
         .carried = a.carried});
  }
  out.by_category[static_cast<std::size_t>(category::fragmentation)] = out.top - rounded;
  std::ranges::sort(out.all, [](holder const& a, holder const& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.offset < b.offset;
  });
  detail::name_holders(out, p);
  return out;
}

/// The same at the first position of the peak.
constexpr memory_holders holders_at_peak(program const& p, space where) {
  return holders(p, where, memory_of(p, where).position);
}

/// Position in `all` of the first program with the largest peak in `where`; at least one program.
constexpr std::size_t peak_program(std::span<program const> all, space where) {
  PROTRAIN_EXPECT(!all.empty(), "peak_program: no program");
  std::size_t best = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint64_t const peak = memory_of(all[i], where).peak;
    best = peak > most ? i : best;
    most = std::max(most, peak);
  }
  return best;
}

/// "saved tensors of block 3 (h), micro-batch 1"; "values of chunk 2".
constexpr text print(holder const& h, trace::trace const& facts) {
  text out = name_of(h.tensor);
  if (h.block.valid()) {
    out += " of ";
    out += print(h.block, facts).view();
  } else if (h.chunk.valid()) {
    out += " of chunk ";
    out += std::uint64_t{h.chunk.value};
  }
  if (!h.carried) {
    out += ", micro-batch ";
    out += std::uint64_t{h.micro_batch};
  }
  return out;
}

/// One line: where that is, and the `most` largest holders.
constexpr text summary(memory_holders const& m, trace::trace const& facts, std::size_t most = 3) {
  text out = "instruction ";
  out += std::uint64_t{m.position};
  out += " of ";
  out += name_of(m.part);
  out += " (";
  out += print(m.at, facts).view();
  out += ") holds ";
  out += m.top;
  out += " bytes of ";
  out += name_of(m.where);
  out += " memory, most of it";
  for (std::size_t i = 0; i < m.all.size() && i < most; ++i) {
    out += i == 0 ? std::string_view(" ") : std::string_view("; ");
    out += m.all[i].bytes;
    out += " bytes ";
    out += print(m.all[i], facts).view();
  }
  return out;
}

}  // namespace protrain::inline v0::schedule
