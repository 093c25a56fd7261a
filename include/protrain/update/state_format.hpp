// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes of model state per element in each state format: sizes only, the arithmetic is optim's.

#include "protrain/core/dtype.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/result.hpp"
#include "protrain/model/job.hpp"

#include <array>
#include <concepts>
#include <cstdint>

namespace protrain::inline v0::update {

struct state_format_tag {};

/// Bytes per element of the working value, and of the optimizer's own state beside it. Laws
/// (test/law/state_format.hpp): `value_bytes` is the size of the working type; the state has room for
/// fp32 m and v and for what the value lacks of the fp32 master; equal for equal formats.
template <class P>
concept state_format_policy =
    std::regular<P> && std::same_as<typename P::policy_tag, state_format_tag> && requires {
      { P::format } -> std::convertible_to<model::state_format>;
      { P::value_bytes } -> std::convertible_to<std::uint64_t>;
      { P::state_bytes } -> std::convertible_to<std::uint64_t>;
    };

/// fp32 value; m and v.
struct fp32 {
  using policy_tag = state_format_tag;
  static constexpr model::state_format format = model::state_format::fp32;
  static constexpr std::uint64_t value_bytes = 4;
  static constexpr std::uint64_t state_bytes = 8;
  bool operator==(fp32 const&) const = default;
};
static_assert(state_format_policy<fp32>);

/// bf16 value, which is the upper half of the fp32 master; lower half (2), m and v.
struct split_master {
  using policy_tag = state_format_tag;
  static constexpr model::state_format format = model::state_format::split_master;
  static constexpr std::uint64_t value_bytes = 2;
  static constexpr std::uint64_t state_bytes = 10;
  bool operator==(split_master const&) const = default;
};
static_assert(state_format_policy<split_master>);

/// bf16 or fp16 value, which is rounded from an fp32 master beside it; master, m and v.
struct separate_master {
  using policy_tag = state_format_tag;
  static constexpr model::state_format format = model::state_format::separate_master;
  static constexpr std::uint64_t value_bytes = 2;
  static constexpr std::uint64_t state_bytes = 12;
  bool operator==(separate_master const&) const = default;
};
static_assert(state_format_policy<separate_master>);

/// Bytes per element of a job's model state.
struct state_bytes {
  std::uint64_t value = 0;     ///< working value, the dtype's size
  std::uint64_t state = 0;     ///< optimizer state beside it
  std::uint64_t gradient = 0;  ///< one contribution, in gradient dtype
  dtype type = dtype::f32;     ///< of values and gradients
  std::uint64_t master = 0;    ///< of `state`: what the format keeps beside the value, in front
  bool operator==(state_bytes const&) const = default;
};

/// The arrays that a chunk's state consists of, one behind the other: the master's if the format has
/// one, then fp32 ones.
struct state_arrays {
  std::array<std::uint64_t, 4> bytes{};  ///< per element
  std::uint32_t count = 0;
};
constexpr state_arrays arrays_of(state_bytes const& b) {
  state_arrays out{};
  if (b.master > 0) {
    out.bytes[out.count++] = b.master;
  }
  for (std::uint64_t at = b.master; at < b.state; at += 4) {
    out.bytes[out.count++] = 4;
  }
  return out;
}

/// The bytes of a job, or `not_allowed` when dtype, state format and loss scale don't go together.
constexpr result<state_bytes> bytes_of(model::job const& j) {
  using model::state_format;
  if (!model::fits_loss_scale(j)) {
    return error{
        errc::not_allowed, "a loss scale is a power of two, and other than 1 only for fp16", 0};
  }
  if (j.state == state_format::fp32 && j.type == dtype::f32) {
    return state_bytes{
        .value = fp32::value_bytes, .state = fp32::state_bytes, .gradient = 4, .type = j.type};
  }
  if (j.state == state_format::split_master && j.type == dtype::bf16) {
    return state_bytes{.value = split_master::value_bytes,
                       .state = split_master::state_bytes,
                       .gradient = 2,
                       .type = j.type,
                       .master = 2};
  }
  if (j.state == state_format::separate_master && (j.type == dtype::bf16 || j.type == dtype::f16)) {
    return state_bytes{.value = separate_master::value_bytes,
                       .state = separate_master::state_bytes,
                       .gradient = 2,
                       .type = j.type,
                       .master = 4};
  }
  return error{errc::not_allowed,
               "dtype and state format don't go together: use fp32 with fp32, bf16 with "
               "split_master or separate_master, fp16 with separate_master",
               0};
}

}  // namespace protrain::inline v0::update
