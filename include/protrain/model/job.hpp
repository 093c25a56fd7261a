// SPDX-License-Identifier: Apache-2.0
#pragma once
// The job: everything that may decide a bit of the result, apart from the model itself. What is
// not here or in the parameter table is the plan's, and never changes a bit.

#include "protrain/core/dtype.hpp"
#include "protrain/core/math.hpp"

#include <bit>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::model {

/// How the optimizer's copy of a parameter is stored (update::state_format_policy has the bytes).
enum class state_format : std::uint8_t { fp32, split_master, separate_master };

constexpr std::string_view name_of(state_format format) noexcept {
  switch (format) {
    case state_format::fp32:
      return "fp32";
    case state_format::split_master:
      return "split_master";
    case state_format::separate_master:
      return "separate_master";
  }
  return "unknown";
}

/// A training job as a value.
struct job {
  std::uint64_t micro_batch = 1;  ///< samples per micro-batch and rank
  std::uint64_t sequence = 0;     ///< tokens per sample (capacity)
  std::uint64_t accumulate = 1;   ///< micro-batches per step; 1 means no accumulation
  std::uint64_t world = 1;        ///< ranks
  dtype type = dtype::f32;        ///< of parameters, activations and gradients
  state_format state = state_format::fp32;
  float clip = 0;          ///< largest gradient norm; 0 means no clipping
  bool skip = false;       ///< skip the step when a gradient is not finite
  std::uint64_t seed = 1;  ///< of initial values and dropout
  float dropout = 0;       ///< probability; 0 means none
  float loss_scale = 1;  ///< what losses' gradients are multiplied by; only fp16 has another than 1
  /// Blocks run under guards (block/guards.hpp). Changes no bit, but every tensor of a block is
  /// followed by a granule of its own, so that traces, plans and memory are others.
  bool debug = false;
  bool operator==(job const&) const = default;
};

/// True when no update may start before the norm of all gradients is known.
constexpr bool needs_norm(job const& j) noexcept {
  return j.clip > 0 || j.skip || j.type == dtype::f16;
}

/// Whether the loss scale is a positive power of two whose inverse is one too, so that scaling and
/// its undoing are exact, and 1 where no gradient is in danger of underflow.
constexpr bool fits_loss_scale(job const& j) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(j.loss_scale);
  std::uint32_t const exponent = bits >> 23U;  // and the sign, which must be 0
  bool const power = (bits & 0x007FFFFFU) == 0 && exponent >= 1 && exponent <= 253;
  return power && (j.type == dtype::f16 || j.loss_scale == 1.0F);
}

/// The state format that fits an element type: fp32 -> fp32, bf16 -> split_master,
/// fp16 -> separate_master.
constexpr state_format default_state(dtype type) noexcept {
  switch (type) {
    case dtype::bf16:
      return state_format::split_master;
    case dtype::f16:
      return state_format::separate_master;
    default:
      return state_format::fp32;
  }
}

/// Bytes behind each tensor of a block that nobody may write.
constexpr std::uint64_t guard_bytes(job const& j) noexcept { return j.debug ? address_granule : 0; }

/// What a tensor of `bytes` takes with its guard; without one, its own bytes.
constexpr std::uint64_t guarded(job const& j, std::uint64_t bytes) {
  return j.debug && bytes > 0 ? granules(bytes) + guard_bytes(j) : bytes;
}

/// Tokens in one step over all ranks.
constexpr std::uint64_t tokens_per_step(job const& j) {
  return checked_mul(checked_mul(j.micro_batch, j.sequence), checked_mul(j.accumulate, j.world));
}

}  // namespace protrain::inline v0::model
