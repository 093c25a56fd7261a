// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times that no schedule beats and bytes that no address assignment saves: what a search may
// discard without compiling. Law (test/property/sim): a simulated time or a compiled extent is
// never below its bound.

#include "protrain/core/queue.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::cost {

namespace detail {

using queue_sums = std::array<picoseconds, queue_count>;

constexpr picoseconds busiest(queue_sums const& sums) { return std::ranges::max(sums); }

/// Marks what must have ended before instruction `at` starts.
constexpr std::vector<std::uint8_t> ancestors(schedule::program const& p, std::uint32_t at) {
  std::vector<std::uint8_t> marked(p.instructions.size(), 0);
  std::array<bool, queue_count> queue{};  // everything earlier on this queue is an ancestor
  marked[at] = 1;
  for (std::uint32_t i = at + 1; i-- > 0;) {
    bool& all = queue[static_cast<std::size_t>(p.instructions[i].queue)];
    if (marked[i] != 0 || all) {
      marked[i] = 1;
      all = true;
      for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
        marked[d] = 1;
      }
    }
  }
  return marked;
}

/// Marks what starts after instruction `at` has ended.
constexpr std::vector<std::uint8_t> descendants(schedule::program const& p, std::uint32_t at) {
  std::vector<std::uint8_t> marked(p.instructions.size(), 0);
  std::array<bool, queue_count> queue{};
  for (std::uint32_t i = at; i < p.instructions.size(); ++i) {
    bool& all = queue[static_cast<std::size_t>(p.instructions[i].queue)];
    bool after = i == at || all;
    for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
      after = after || marked[d] != 0;
    }
    marked[i] = after ? 1 : 0;
    all = all || after;
  }
  return marked;
}

}  // namespace detail

/// For one program: the busiest queue, and the busiest queue before the norm plus the busiest one
/// after it. O(instructions + dependencies).
constexpr picoseconds lower_bound(schedule::program const& p,
                                  std::span<picoseconds const> durations) {
  PROTRAIN_EXPECT(durations.size() == p.instructions.size(), "one duration per instruction");
  detail::queue_sums all{};
  std::uint32_t norm = ~std::uint32_t{0};
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    all[static_cast<std::size_t>(p.instructions[i].queue)] += durations[i];
    norm = p.instructions[i].op == schedule::opcode::norm_finish ? i : norm;
  }
  if (norm >= p.instructions.size()) {
    return detail::busiest(all);
  }
  auto const before = detail::ancestors(p, norm);
  auto const after = detail::descendants(p, norm);
  detail::queue_sums early{};
  detail::queue_sums late{};
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    auto const q = static_cast<std::size_t>(p.instructions[i].queue);
    early[q] += i != norm && before[i] != 0 ? durations[i] : picoseconds{};
    late[q] += i != norm && after[i] != 0 ? durations[i] : picoseconds{};
  }
  return std::max(detail::busiest(all),
                  detail::busiest(early) + durations[norm] + detail::busiest(late));
}

namespace detail {

/// The bound of a step before it is compiled, in the order in which it runs.
struct step_bound {
  step const& s;
  placed const& p;
  assigned const& a;
  std::uint32_t buffers;

  /// Of regular uploads, or of their gathers: what each phase but the first repeats. At its start
  /// the buffers hold at most `buffers` chunks, and the phase needs all of them.
  constexpr picoseconds again(picoseconds all, std::vector<picoseconds> const& sums) const {
    return all - sums[std::min<std::size_t>(buffers, sums.size() - 1)];
  }
  constexpr picoseconds again() const { return again(p.uploads, p.largest); }
  /// From the start of such a phase to the last pass that it feeds: uploads follow each other, and
  /// so do gathers, each behind its upload.
  constexpr picoseconds fed_again() const {
    picoseconds const up = again();
    picoseconds const all = again(p.gathers, p.longest);
    return up.value == 0 ? picoseconds{}
                         : std::max(up + p.shortest_gather, p.shortest_upload + all);
  }
  /// A buffer holds one chunk at a time, from the start of its upload to the end of what uses it.
  constexpr picoseconds held(picoseconds computed, picoseconds brought) const {
    return buffers == 0 ? picoseconds{} : picoseconds{(computed + brought).value / buffers};
  }
  constexpr picoseconds brought_again() const { return again() + again(p.gathers, p.longest); }
  /// What runs first on its queue is in front of `copies`, if there are any.
  constexpr picoseconds behind_scalars(picoseconds copies) const {
    bool const scalars = p.device_scalars && !s.needs_norm && copies.value > 0;
    return copies + (scalars ? s.scalars : picoseconds{});
  }
  /// End of the first forward pass.
  constexpr picoseconds forward_end() const {
    picoseconds const moved = p.uploads + p.uploads_oversize;
    picoseconds const start = behind_scalars(s.batch + p.uploads_first);
    picoseconds fed{};
    if (moved.value > 0) {
      picoseconds const gathered = p.shortest_upload + p.gathers + p.gathers_oversize;
      fed = std::max(behind_scalars(s.batch + moved) + p.shortest_gather, gathered);
    }
    return std::max({start + p.gather_first + s.forward,
                     fed + s.forward_last,
                     p.left_forward,
                     held(p.held_forward, p.uploads + p.gathers)});
  }

  struct ends {
    picoseconds forward{};   ///< of the last micro-batch
    picoseconds backward{};  ///< likewise
    picoseconds computed{};  ///< of all passes and what the device does for their gradients
  };
  /// Phases follow each other, each as long as its compute or its uploads.
  constexpr ends phases() const {
    ends at{.forward = forward_end()};
    for (std::uint32_t m = 0; m < s.micro_batches; ++m) {
      if (m > 0) {
        at.forward = std::max({at.backward + p.device_every_end + s.forward,
                               at.backward + fed_again() + s.forward_last,
                               at.backward + held(p.held_forward, brought_again()),
                               at.computed + s.forward});
      }
      bool const last = m + 1 == s.micro_batches;
      picoseconds const before = last ? p.device_last : p.device_every;
      picoseconds const around = last ? p.device_last_around : p.device_around;
      picoseconds const after = last ? p.device_last_end : p.device_every_end;
      at.computed = at.forward + a.backward.front() + before + around + after;
      at.backward = at.forward + std::max({a.backward.front() + before,
                                           fed_again() + s.backward_first,
                                           held(p.held_backward, brought_again())});
    }
    at.backward = std::max({at.backward, copies_up() + s.backward_first, gathered()});
    return at;
  }
  /// Every copy to the device before the last backward.
  constexpr picoseconds copies_up() const {
    return behind_scalars(s.batch * s.micro_batches + p.uploads +
                          again() * (2 * s.micro_batches - 1) + p.uploads_oversize +
                          p.uploads_oversize_again + a.swap_in * s.micro_batches);
  }
  /// Every gather before the last backward, and that.
  constexpr picoseconds gathered() const {
    picoseconds const all = p.gathers + again(p.gathers, p.longest) * (2 * s.micro_batches - 1) +
                            p.gathers_oversize + p.gathers_oversize_again;
    return all.value == 0 ? picoseconds{} : p.shortest_upload + all + s.backward_first;
  }
  /// The last reduction: they follow each other, each behind the passes that it sums.
  constexpr picoseconds reduced(ends const& at) const {
    if (!p.first_reduced.valid()) {
      return {};
    }
    picoseconds const first = at.forward + a.backward[p.first_reduced.index()] + p.reduces;
    return std::max({p.reduces * s.micro_batches, first, at.backward + p.last_reduced});
  }
  constexpr picoseconds copies_down() const {
    return (s.loss_read + a.swap_out + p.offloads) * s.micro_batches;
  }

  /// Streamed updates that can't begin before a gradient is there.
  constexpr picoseconds streamed(ends const& at) const {
    picoseconds out{};
    for (late_stream const& l : p.late_streams) {
      out = l.closes.valid() ? std::max(out, at.forward + a.backward[l.closes.index()] + l.copies)
                             : out;
    }
    return out;
  }

  constexpr picoseconds total() const {
    ends const at = phases();
    picoseconds offloaded = copies_down();
    picoseconds host = p.host_left + p.host_every * (s.micro_batches - 1) + p.host_last;
    if (p.first_closed.valid()) {
      picoseconds const first = at.forward + a.backward[p.first_closed.index()] +
                                std::max(p.device_before, p.first_reduce);
      offloaded = std::max(offloaded, first + p.offloads);
      offloaded = p.host_ends ? std::max(offloaded, at.backward + p.reduce_end + p.offloads_end)
                              : offloaded;
      host = std::max({host, first + p.first_offload + p.host_last, offloaded + p.host_end});
    }
    picoseconds const device =
        std::max(at.backward + p.device_reduce + p.device_last_end, at.computed);
    picoseconds norm = std::max(host, offloaded);
    if (p.device_norms) {
      picoseconds const summed =
          p.device_ends ? at.backward + p.device_reduce + p.device_norm_end : picoseconds{};
      norm = std::max(norm, std::max(offloaded, summed) + s.norm_read);
    }
    picoseconds const ready = s.needs_norm ? norm + s.scalars : device;
    picoseconds updated = p.device_updates ? ready + p.device_updates_time : picoseconds{};
    updated += s.waits ? p.shortest_updated : picoseconds{};
    picoseconds const waited = (s.needs_norm ? norm + s.scalars : at.backward) + p.stream_waited;
    return std::max({device,
                     norm + p.host_updates,
                     updated,
                     reduced(at),
                     streamed(at),
                     p.host_all,
                     p.gathers + p.gathers_oversize + p.gathers_updated,
                     p.stream_waited.value > 0 ? waited : picoseconds{},
                     p.stream_up.value > 0 ? copies_up() + p.stream_up : picoseconds{},
                     copies_down() + p.stream_down});
  }
};

}  // namespace detail

/// For knobs that are not compiled yet, from their facts. O(micro-batches).
constexpr picoseconds lower_bound(step const& s,
                                  placed const& p,
                                  assigned const& a,
                                  std::uint32_t buffers) {
  return detail::step_bound{s, p, a, buffers}.total();
}

/// Bytes of both spaces that a program needs at least.
struct live_bytes {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  bool operator==(live_bytes const&) const = default;
};

/// What the device holds all the time.
constexpr std::uint64_t carried_bytes(placed const& p,
                                      std::uint32_t buffers,
                                      std::uint32_t streaming_slots) {
  return checked_add(checked_add(p.device_carried, checked_mul(p.buffer_bytes, buffers)),
                     checked_mul(p.slot_bytes, streaming_slots));
}

/// Live bytes in program order, without fragmentation. O(1), or O(blocks) where an oversize chunk
/// moves.
constexpr live_bytes least_memory(chunk::layout const& l,
                                  step const& s,
                                  placed const& p,
                                  assigned const& a,
                                  std::uint32_t buffers,
                                  std::uint32_t streaming_slots) {
  std::uint64_t live = a.most_live;
  if (!p.moving_oversize.empty()) {
    std::vector<std::uint64_t> stages = a.live;
    for (chunk_id const c : p.moving_oversize) {
      std::vector<std::uint8_t> in(std::size_t{2} * s.blocks, 0);
      for (block_id const b : l[c].blocks) {
        in[b.index()] = 1;
        in[2 * s.blocks - 1 - b.value] = 1;
      }
      for (std::size_t i = 0; i < stages.size(); ++i) {
        stages[i] += in[i % in.size()] != 0 ? s.chunks[c.index()].value : 0;
      }
    }
    live = std::ranges::max(stages);
  }
  return {.device = checked_add(carried_bytes(p, buffers, streaming_slots), live),
          .host = checked_add(p.host_carried, a.swapped)};
}

}  // namespace protrain::inline v0::cost
