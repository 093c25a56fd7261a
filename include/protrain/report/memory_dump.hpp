// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who holds which bytes, as text: by category, block, chunk, micro-batch and operator, then the
// largest tensors one by one.

#include "protrain/core/queue.hpp"
#include "protrain/report/format.hpp"
#include "protrain/schedule/holders.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

inline std::string dump_line(std::uint64_t amount, std::string const& what) {
  return right(std::to_string(amount), 18) + "  " + what + "\n";
}

/// Bytes of the holders by `key(holder)`, an id or an absent one; `name` says what an id is.
template <class Name>
std::string dump_group(schedule::memory_holders const& m,
                       std::string const& head,
                       std::uint32_t (*key)(schedule::holder const&),
                       Name const& name) {
  std::map<std::uint32_t, std::uint64_t> sums;
  for (schedule::holder const& h : m.all) {
    sums[key(h)] += h.bytes;
  }
  std::string out = "  by " + head + "\n";
  for (auto const& [id, bytes] : sums) {
    bool const absent = id == std::numeric_limits<std::uint32_t>::max();
    out += dump_line(bytes, absent ? "of no " + head : name(id));
  }
  return out;
}

inline std::string dump_categories(schedule::memory_holders const& m) {
  std::string out = "  by category\n";
  for (std::size_t c = 0; c < category_count; ++c) {
    if (m.by_category[c] > 0) {
      out += dump_line(m.by_category[c], std::string(name_of(static_cast<category>(c))));
    }
  }
  return out;
}

/// What takes scratch in the block that runs.
inline std::string dump_operators(schedule::memory_holders const& m, trace::trace const& facts) {
  if (!m.at.block.valid() || m.at.block.index() >= facts.blocks.size()) {
    return {};
  }
  std::string out;
  for (trace::operator_facts const& o : facts.shape(m.at.block).operators) {
    if (o.scratch_peak.value > 0) {
      out += dump_line(o.scratch_peak.value, "at most, operator " + std::string(o.name.view()));
    }
  }
  return out.empty() ? out
                     : "  scratch of " + std::string(schedule::print(m.at.block, facts).view()) +
                           " by operator\n" + out;
}

inline std::string dump_holders(schedule::memory_holders const& m,
                                trace::trace const& facts,
                                std::size_t most) {
  std::string out = "  largest holders\n";
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < m.all.size(); ++i) {
    schedule::holder const& h = m.all[i];
    if (i >= most) {
      rest += h.bytes;
      continue;
    }
    std::string const since = h.carried ? "carried from step to step"
                                        : "since instruction " + std::to_string(h.since) + " (" +
                                              std::string(schedule::name_of(h.born)) + ")";
    out += dump_line(
        h.bytes,
        left(name_of(h.what), 18) + std::string(schedule::print(h, facts).view()) + ", " + since);
  }
  return rest == 0 ? out
                   : out + dump_line(rest, std::to_string(m.all.size() - most) + " smaller ones");
}

}  // namespace detail

/// All groups and the `most` largest holders. Each group's bytes are as asked for; those of the
/// categories, padding and fragmentation among them, sum to the total exactly.
inline std::string memory_dump(schedule::memory_holders const& m,
                               trace::trace const& facts,
                               std::size_t most = 20) {
  std::string out = std::string(name_of(m.where)) + " memory: " + std::to_string(m.top) +
                    " bytes at instruction " + std::to_string(m.position) + " of " +
                    std::string(schedule::name_of(m.part)) + ", " +
                    std::string(schedule::print(m.at, facts).view()) + "\n";
  out += detail::dump_categories(m);
  out += detail::dump_group(
      m,
      "block",
      [](schedule::holder const& h) { return h.block.value; },
      [&](std::uint32_t b) { return std::string(schedule::print(block_id{b}, facts).view()); });
  out += detail::dump_group(
      m,
      "chunk",
      [](schedule::holder const& h) { return h.chunk.value; },
      [](std::uint32_t c) { return "chunk " + std::to_string(c); });
  out += detail::dump_group(
      m,
      "micro-batch",
      [](schedule::holder const& h) {
        return h.carried ? std::numeric_limits<std::uint32_t>::max() : h.micro_batch;
      },
      [](std::uint32_t k) { return "micro-batch " + std::to_string(k); });
  out += detail::dump_operators(m, facts);
  return out + detail::dump_holders(m, facts, most);
}

/// At the peak of the program whose peak in `where` is the largest.
inline std::string memory_dump(std::span<schedule::program const> programs,
                               trace::trace const& facts,
                               space where,
                               std::size_t most = 20) {
  schedule::program const& p = programs[schedule::peak_program(programs, where)];
  return memory_dump(schedule::holders_at_peak(p, where), facts, most);
}

}  // namespace protrain::inline v0::report
