// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the blocks' strategies and levels alone decide: rebuilding, swapping, and the bytes that are live
// on the device besides model states, in program order.

#include "protrain/activation/strategy.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

struct assigned {
  std::vector<activation::strategy> strategies{};
  std::vector<std::uint8_t> levels{};   ///< by block; empty: all 0
  picoseconds swap_out{};               ///< in one micro-batch
  picoseconds swap_in{};                ///< likewise
  std::uint64_t swapped = 0;            ///< most bytes on the host at once
  std::vector<picoseconds> backward{};  ///< by block: from the last block to the end of its own
  std::vector<std::uint64_t> live{};    ///< by stage: most bytes at once, model states aside
  std::uint64_t most_live = 0;
};

namespace detail {

/// Null at level 0.
constexpr trace::save_level const* level_of(trace::trace const& t,
                                            std::vector<std::uint8_t> const& levels,
                                            std::uint32_t b) {
  std::uint32_t const k = levels.empty() ? 0U : levels[b];
  return k == 0 ? nullptr : &t.shapes[t.blocks[b].index()].levels[k - 1];
}

/// Follows the activations, boundaries, gradients and batches of a step.
class live_walk {
 public:
  constexpr live_walk(trace::trace const& t,
                      step const& s,
                      std::vector<activation::strategy> const& strategies,
                      std::vector<std::uint8_t> const& levels,
                      std::uint32_t slots,
                      std::uint32_t ahead)
      : facts_(t),
        step_(s),
        strategies_(strategies),
        levels_(levels),
        slots_(slots),
        ahead_(ahead),
        output_(s.blocks, 0),
        gradient_(s.blocks, 0),
        saved_(s.blocks, 0),
        swapped_(s.blocks, 0) {}

  /// High-water of each stage. After the third micro-batch the others repeat the second.
  constexpr std::vector<std::uint64_t> run() {
    now_ = checked_mul(granules(checked_mul(facts_.job.micro_batch, 4)), step_.in_program);
    std::uint64_t const batch = granules(facts_.batch.value);
    std::uint32_t const rounds = std::min<std::uint32_t>(step_.in_program, 3);
    now_ += batch;
    for (std::uint32_t m = 0; m < rounds; ++m) {
      for (std::uint32_t b = 0; b < step_.blocks; ++b) {
        forward(b);
      }
      bool const more = m + 1 < step_.in_program;
      now_ += more ? batch : 0;
      for (std::uint32_t b = step_.blocks; b-- > 0;) {
        backward(b);
      }
      drop(leaving_);
      now_ -= batch;
    }
    return std::move(peaks_);
  }

 private:
  constexpr trace::block_shape const& shape(std::uint32_t b) const {
    return facts_.shapes[facts_.blocks[b].index()];
  }
  constexpr void take(std::uint64_t& into, bytes size) {
    into = granules(size.value);
    now_ = checked_add(now_, into);
    peak_ = std::max(peak_, now_);
  }
  constexpr void drop(std::uint64_t& what) {
    now_ -= what;
    what = 0;
  }
  constexpr void touch(bytes size) { peak_ = std::max(peak_, now_ + granules(size.value)); }

  constexpr void forward(std::uint32_t b) {
    peak_ = now_;
    activation::strategy const how = strategies_[b];
    trace::save_level const* const at = level_of(facts_, levels_, b);
    take(output_[b], shape(b).output);
    take(saved_[b], at != nullptr ? at->saved : shape(b).saved);
    std::uint64_t dropped = 0;
    take(dropped, at != nullptr ? at->rebuilt : bytes{});
    touch(shape(b).scratch_forward);
    drop(dropped);
    if (how == activation::strategy::checkpoint) {
      drop(saved_[b]);
    } else if (how == activation::strategy::swap && saved_[b] > 0) {
      drop(leaving_);
      std::swap(leaving_, saved_[b]);
      swapped_[b] = 1;
    }
    bool const rereads =
        how == activation::strategy::checkpoint || (at != nullptr && at->reads_input);
    if (b > 0 && !shape(b).reads_input && !rereads) {
      drop(output_[b - 1]);
    }
    peaks_.push_back(peak_);
  }

  constexpr void backward(std::uint32_t b) {
    peak_ = now_;
    drop(leaving_);
    for (std::uint32_t k = 0; k <= ahead_ && k <= b; ++k) {
      if (std::exchange(swapped_[b - k], std::uint8_t{0}) != 0) {
        take(saved_[b - k], shape(b - k).saved);
      }
    }
    if (strategies_[b] == activation::strategy::checkpoint) {
      take(saved_[b], shape(b).saved);
      touch({granules(shape(b).output.value) + granules(shape(b).scratch_forward.value)});
    }
    std::uint64_t rebuilt = 0;
    if (trace::save_level const* const at = level_of(facts_, levels_, b); at != nullptr) {
      take(rebuilt, at->rebuilt);
      touch(at->scratch);
    }
    std::uint64_t dx = 0;
    if (b > 0) {
      take(dx, shape(b).input);
    }
    open_gradients(b);
    touch(shape(b).scratch_backward);
    drop(saved_[b]);
    drop(rebuilt);
    drop(gradient_[b]);
    if (b > 0) {
      gradient_[b - 1] = dx;
      drop(output_[b - 1]);
    }
    close_gradients(b);
    peaks_.push_back(peak_);
  }

  constexpr void open_gradients(std::uint32_t b) {
    for (std::uint32_t const at : step_.opening[b]) {
      while (!closed_.empty() && closed_.size() + open_ >= slots_) {
        drop(closed_.front());
        closed_.erase(closed_.begin());
      }
      std::uint64_t slot = 0;
      take(slot, {step_.spans[at].slot_bytes});
      ++open_;
    }
  }

  constexpr void close_gradients(std::uint32_t b) {
    for (std::uint32_t const at : step_.closing[b]) {
      --open_;
      closed_.push_back(step_.spans[at].slot_bytes);
    }
  }

  trace::trace const& facts_;
  step const& step_;
  std::vector<activation::strategy> const& strategies_;
  std::vector<std::uint8_t> const& levels_;
  std::uint32_t slots_;
  std::uint32_t ahead_;
  std::uint64_t now_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t leaving_ = 0;
  std::uint32_t open_ = 0;
  std::vector<std::uint64_t> output_;
  std::vector<std::uint64_t> gradient_;
  std::vector<std::uint64_t> saved_;
  std::vector<std::uint8_t> swapped_;
  std::vector<std::uint64_t> closed_{};
  std::vector<std::uint64_t> peaks_{};
};

/// Ends of the backward passes, by block, from the start of a backward phase.
constexpr std::vector<picoseconds> backward_ends(trace::trace const& t,
                                                 step const& s,
                                                 std::vector<activation::strategy> const& how,
                                                 std::vector<std::uint8_t> const& levels) {
  std::vector<picoseconds> out(s.blocks, picoseconds{});
  for (span_cost const& g : s.spans) {
    out[g.opens.index()] += g.zero;
  }
  picoseconds now{};
  for (std::uint32_t b = s.blocks; b-- > 0;) {
    trace::block_shape const& shape = t.shapes[t.blocks[b].index()];
    bool const again = how[b] == activation::strategy::checkpoint;
    now += out[b] + shape.backward + (again ? shape.forward : picoseconds{});
    if (trace::save_level const* const at = level_of(t, levels, b); at != nullptr) {
      now += at->rebuild;
    }
    out[b] = now;
  }
  return out;
}

}  // namespace detail

/// The facts of `strategies` (one per block) and of save levels (one per block, or none at all).
/// O(blocks + spans).
constexpr assigned make_assigned(trace::trace const& t,
                                 step const& s,
                                 rates const& r,
                                 std::vector<activation::strategy> strategies,
                                 std::uint32_t gradient_slots,
                                 std::uint32_t swap_ahead,
                                 std::vector<std::uint8_t> levels = {}) {
  assigned out{.strategies = std::move(strategies), .levels = std::move(levels)};
  for (std::uint32_t b = 0; b < s.blocks; ++b) {
    std::uint64_t const saved = t.shapes[t.blocks[b].index()].saved.value;
    if (out.strategies[b] == activation::strategy::swap && saved > 0) {
      out.swap_out += download_time(r, saved);
      out.swap_in += upload_time(r, saved);
      out.swapped = checked_add(out.swapped, granules(saved));
    }
  }
  out.backward = detail::backward_ends(t, s, out.strategies, out.levels);
  out.live = detail::live_walk(t, s, out.strategies, out.levels, gradient_slots, swap_ahead).run();
  out.most_live = std::ranges::max(out.live);
  return out;
}

/// Makes `into` no dearer than `other` in any respect that a bound on the time looks at.
constexpr void cheapen(assigned& into, assigned const& other) {
  into.swap_out = std::min(into.swap_out, other.swap_out);
  into.swap_in = std::min(into.swap_in, other.swap_in);
  for (std::size_t b = 0; b < into.backward.size(); ++b) {
    into.backward[b] = std::min(into.backward[b], other.backward[b]);
  }
}

}  // namespace protrain::inline v0::cost
