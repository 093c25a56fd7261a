// SPDX-License-Identifier: Apache-2.0
#pragma once
// Appends instructions to a program. Dependencies are not written by hand: they follow from what
// instructions read and write, and from who used a range of memory before.

#include "protrain/schedule/detail/arena.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

class emitter {
 public:
  static constexpr std::uint32_t all_pieces = ~std::uint32_t{0};

  program out;

  constexpr std::uint32_t position() const {
    return static_cast<std::uint32_t>(out.instructions.size());
  }

  /// Takes memory from this position on. Nothing for 0 bytes: the id is absent then.
  constexpr allocation_id take(allocation a) {
    if (a.bytes == 0) {
      return {};
    }
    arena::placement const p = arenas_[static_cast<std::size_t>(a.where)].take(a.bytes);
    a.offset = p.offset;
    a.begin = position();
    a.end = still_live;
    out.allocations.push_back(a);
    users_.push_back({.before = p.before});
    return make_id<allocation_id>(out.allocations.size() - 1);
  }

  /// Returns memory: it is free from this position on. Absent ids are ignored and `id` becomes
  /// absent.
  constexpr void give(allocation_id& id) {
    if (!id.valid()) {
      return;
    }
    allocation& a = out.allocations[id.index()];
    a.end = position();
    user const& u = users_[id.index()];
    clock last = u.before;
    merge(last, u.whole.written);
    merge(last, u.whole.read);
    arenas_[static_cast<std::size_t>(a.where)].give(a.offset, last);
    id = {};
  }

  /// From now on, who uses one of `n` disjoint pieces of an allocation doesn't wait for who uses
  /// another. Not for memory that is given back.
  constexpr void split(allocation_id id, std::uint32_t n) {
    if (id.valid()) {
      users_[id.index()].pieces.assign(n, {});
    }
  }

  /// Starts an instruction; `operand` adds to it and `end` computes what it waits for.
  constexpr void begin(instruction i) {
    i.first_operand = static_cast<std::uint32_t>(out.operands.size());
    current_ = i;
    pieces_.clear();
  }

  /// The whole allocation, or the given part of it, which may lie in one piece. Absent ids are
  /// skipped.
  constexpr void use(role what,
                     access mode,
                     allocation_id id,
                     operand part = {},
                     std::uint32_t piece = all_pieces) {
    if (!id.valid()) {
      return;
    }
    if (part.bytes == 0) {
      part.bytes = out.allocations[id.index()].bytes;
    }
    part.what = what;
    part.mode = mode;
    part.allocation = id;
    out.operands.push_back(part);
    pieces_.push_back(piece);
  }

  constexpr void end() {
    instruction i = current_;
    std::uint32_t const index = position();
    i.operand_count = static_cast<std::uint32_t>(out.operands.size()) - i.first_operand;
    i.first_dependency = static_cast<std::uint32_t>(out.dependencies.size());
    auto const q = static_cast<std::size_t>(i.queue);
    clock known = queues_[q].empty() ? clock{} : clocks_[queues_[q].back()];
    await(known, needed_by(i));
    i.dependency_count = static_cast<std::uint32_t>(out.dependencies.size()) - i.first_dependency;
    queues_[q].push_back(index);
    known[q] = static_cast<std::uint32_t>(queues_[q].size());
    clocks_.push_back(known);
    for (std::size_t k = 0; k < pieces_.size(); ++k) {
      operand const& o = out.operands[i.first_operand + k];
      user& u = users_[o.allocation.index()];
      accesses& a = pieces_[k] == all_pieces ? u.whole : u.pieces[pieces_[k]];
      (writes(o.mode) ? a.written : a.read)[q] = known[q];
    }
    out.instructions.push_back(i);
  }

  /// Closes the program: what is still live is live to the end.
  constexpr program finish() {
    for (allocation& a : out.allocations) {
      a.end = a.end == still_live ? position() : a.end;
    }
    return std::move(out);
  }

 private:
  struct accesses {
    clock written{};
    clock read{};
  };
  /// Who touched an allocation, by queue, and who used its bytes before it.
  struct user {
    clock before{};
    accesses whole{};
    std::vector<accesses> pieces{};
  };
  static constexpr std::uint32_t still_live = ~std::uint32_t{0};

  /// Everything that has to be done before the operands of `i` may be touched.
  constexpr clock needed_by(instruction const& i) const {
    clock needed{};
    for (std::size_t k = 0; k < pieces_.size(); ++k) {
      operand const& o = out.operands[i.first_operand + k];
      user const& u = users_[o.allocation.index()];
      merge(needed, u.before);
      await(needed, u.whole, o.mode);
      for (std::uint32_t n = 0; n < u.pieces.size(); ++n) {
        if (pieces_[k] == all_pieces || pieces_[k] == n) {
          await(needed, u.pieces[n], o.mode);
        }
      }
    }
    return needed;
  }
  static constexpr void await(clock& needed, accesses const& before, access mode) {
    merge(needed, before.written);
    if (writes(mode)) {
      merge(needed, before.read);
    }
  }

  /// Adds the dependencies that make `needed` known, latest instruction first, so that what one
  /// of them implies isn't added again.
  constexpr void await(clock& known, clock const& needed) {
    while (true) {
      std::uint32_t latest = 0;
      bool missing = false;
      for (std::size_t q = 0; q < queue_count; ++q) {
        if (needed[q] > known[q]) {
          latest = std::max(latest, queues_[q][needed[q] - 1]);
          missing = true;
        }
      }
      if (!missing) {
        return;
      }
      out.dependencies.push_back(latest);
      merge(known, clocks_[latest]);
    }
  }

  instruction current_{};
  std::vector<std::uint32_t> pieces_{};  ///< of its operands
  // Vectors, because nvcc's constant evaluation doesn't destroy the elements of an array.
  std::vector<arena> arenas_ = std::vector<arena>(space_count, arena{});
  std::vector<std::vector<std::uint32_t>> queues_ =
      std::vector<std::vector<std::uint32_t>>(queue_count, std::vector<std::uint32_t>{});
  std::vector<clock> clocks_;  ///< by position, itself included
  std::vector<user> users_;    ///< by allocation
};

}  // namespace protrain::inline v0::schedule::detail
