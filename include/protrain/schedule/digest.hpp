// SPDX-License-Identifier: Apache-2.0
#pragma once
// One number for the programs of a job: ranks that run the same programs have the same.

#include "protrain/schedule/program.hpp"

#include <cstdint>
#include <span>

namespace protrain::inline v0::schedule {

namespace detail {

/// Order-sensitive, a bijection in each word.
class program_digest {
 public:
  constexpr void word(std::uint64_t w) {
    state_ = (state_ << 29U | state_ >> 35U) ^ w;
    state_ *= 0x9E3779B97F4A7C15ULL;
    state_ ^= state_ >> 32U;
  }
  constexpr std::uint64_t value() const { return state_; }

  constexpr void add(instruction const& i) {
    word(static_cast<std::uint64_t>(i.op) << 8U | static_cast<std::uint64_t>(i.queue));
    word(std::uint64_t{i.micro_batch} << 32U | i.version);
    word(std::uint64_t{i.block.value} << 32U | i.chunk.value);
    word(i.span.value);
    word(std::uint64_t{i.part} << 32U | i.level);
    word(i.amount);
    word(std::uint64_t{i.first_operand} << 32U | i.operand_count);
    word(std::uint64_t{i.first_dependency} << 32U | i.dependency_count);
  }
  constexpr void add(operand const& o) {
    word(static_cast<std::uint64_t>(o.what) << 8U | static_cast<std::uint64_t>(o.mode));
    word(std::uint64_t{o.allocation.value} << 32U | o.chunk.value);
    word(o.span.value);
    word(o.offset);
    word(o.bytes);
    word(o.stride);
    word(o.advance);
  }
  constexpr void add(allocation const& a) {
    word(static_cast<std::uint64_t>(a.where) << 16U | static_cast<std::uint64_t>(a.what) << 8U |
         (a.carried ? 1U : 0U));
    word(a.offset);
    word(a.bytes);
    word(std::uint64_t{a.begin} << 32U | a.end);
    word(std::uint64_t{a.block.value} << 32U | a.chunk.value);
    word(a.micro_batch);
  }
  constexpr void add(gradient_span const& s) {
    word(std::uint64_t{s.chunk.value} << 32U | s.ordinal);
    word(s.blocks.size());
    for (block_id const b : s.blocks) {
      word(b.value);
    }
    word(s.tensors.size());
    for (span_tensor const& t : s.tensors) {
      word(std::uint64_t{t.tensor} << 1U | (t.first ? 1U : 0U));
    }
  }
  constexpr void add(std::uint32_t dependency) { word(dependency); }
  constexpr void add(std::uint8_t deferred) { word(deferred); }
  constexpr void add(std::uint64_t elements) { word(elements); }

  constexpr void add_all(auto const& rows) {
    word(rows.size());
    for (auto const& row : rows) {
      add(row);
    }
  }
  constexpr void add(program const& p) {
    word(p.fingerprint);
    word(static_cast<std::uint64_t>(p.part));
    word(std::uint64_t{p.micro_batches} << 32U | p.before);
    word(p.times);
    word(p.ranks);
    add_all(p.deferred);
    add_all(p.part_elements);
    add_all(p.instructions);
    add_all(p.operands);
    add_all(p.dependencies);
    add_all(p.allocations);
    add_all(p.spans);
  }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ULL;
};

}  // namespace detail

/// Of every field of every program, in order: two ranks with the same digest issue the same
/// collectives in the same order. Programs of one job and other knobs have the same fingerprint and
/// another digest. O(bytes of the programs).
constexpr std::uint64_t digest(std::span<program const> programs) {
  detail::program_digest d;
  d.add_all(programs);
  return d.value();
}

}  // namespace protrain::inline v0::schedule
