// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine's pace under a bandwidth policy: what each kind of work gets alone, and beside every mix
// of other work.

#include "protrain/core/config.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::sim {

namespace detail {

/// What limits an instruction: one of link's channels, by its position, or compute, which nothing
/// slows.
inline constexpr std::size_t compute_need = link::channel_count;
inline constexpr std::size_t need_count = link::channel_count + 1;

constexpr std::size_t need_of(schedule::instruction const& i) noexcept {
  using schedule::opcode;
  auto const position = [](link::channel c) { return static_cast<std::size_t>(c); };
  switch (i.queue) {
    case queue_id::h2d:
      return position(link::channel::host_to_device);
    case queue_id::d2h:
      return position(link::channel::device_to_host);
    case queue_id::gather:
    case queue_id::reduce:
      return position(link::channel::collective);
    case queue_id::cpu: {
      bool const exchange = i.op == opcode::norm_exchange || i.op == opcode::loss_exchange;
      return position(exchange ? link::channel::collective : link::channel::host_memory);
    }
    case queue_id::compute:
      break;
  }
  bool const pass = i.op == opcode::forward || i.op == opcode::backward ||
                    i.op == opcode::recompute || i.op == opcode::rebuild;
  return pass ? compute_need : position(link::channel::device_memory);
}

/// What runs at once, as a number: the sum of one unit per instruction, by need. A bit is enough
/// where one queue has the need; three queues may have the last one.
inline constexpr std::array<std::uint32_t, need_count> unit_of = [] {
  std::array<std::uint32_t, need_count> out{};
  std::uint32_t bit = 1;
  for (std::size_t n = 0; n < need_count; ++n) {
    if (n != static_cast<std::size_t>(link::channel::collective)) {
      out[n] = bit;
      bit *= 2;
    }
  }
  out[static_cast<std::size_t>(link::channel::collective)] = bit;
  return out;
}();
inline constexpr std::uint32_t mix_count = 4U << (need_count - 1);

constexpr link::load load_of(std::uint32_t mix) noexcept {
  auto const on = [&](std::size_t need) { return (mix & unit_of[need]) != 0 ? 1U : 0U; };
  auto const with = [&](link::channel c) { return on(static_cast<std::size_t>(c)); };
  return {.host_to_device = with(link::channel::host_to_device),
          .device_to_host = with(link::channel::device_to_host),
          .collective = mix / unit_of[static_cast<std::size_t>(link::channel::collective)],
          .device_memory = with(link::channel::device_memory),
          .host_memory = with(link::channel::host_memory),
          .compute = on(compute_need)};
}

/// One queue runs compute or device memory's work, one host memory's or a third collective.
constexpr bool possible(link::load const& l) noexcept {
  return l.compute + l.device_memory <= 1 && (l.collective <= 2 || l.host_memory == 0);
}

}  // namespace detail

/// Made once for a job of `world` ranks and asked by everything that predicts: durations come from
/// its rates alone, simulations from these and its rates among other work. A policy that does not
/// know contention, or a machine where it finds none, has a pace that is not contended.
class pace {
 public:
  /// Rates by channel, in units per second.
  using row = std::array<std::uint64_t, link::channel_count>;

  template <link::bandwidth_policy B>
  constexpr pace(hw::machine const& m, B const& policy, std::uint64_t world)
      : rates_(cost::rates_of(m, policy, world)) {
    alone_ = {rates_.host_to_device.per_second,
              rates_.device_to_host.per_second,
              rates_.collective.per_second,
              rates_.device_memory.per_second,
              rates_.host_memory.per_second};
    auto const among = [&](std::size_t n, link::load const& l) {
      auto const c = static_cast<link::channel>(n);
      std::uint64_t const got =
          cost::rate_of_rank(m, c, link::rate_among(policy, m, c, l), world).per_second;
      PROTRAIN_EXPECT(got <= alone_[n] && (got > 0 || alone_[n] == 0),
                      "contention law: a positive rate, at most the one alone");
      return got;
    };
    contended_ = slows(among);
    if (contended_) {
      tabulate(among);
    }
  }

  /// True where work slows other work.
  constexpr bool contended() const noexcept { return contended_; }
  /// Of work that runs alone.
  constexpr cost::rates const& rates() const noexcept { return rates_; }
  /// The same by channel; 1 where the machine has none, which nothing slows then.
  constexpr std::uint64_t alone(std::size_t channel) const {
    return std::max<std::uint64_t>(alone_[channel], 1);
  }
  /// Beside everything in `mix` (detail::unit_of), which counts the work itself. Contended paces only.
  constexpr row const& among(std::uint32_t mix) const { return table_[mix]; }

 private:
  /// Laws say that what slows nothing in the fullest mixes slows nothing in others.
  template <class Among>
  static constexpr bool slower(Among const& among, row const& alone, link::load const& l) {
    bool out = false;
    for (std::size_t n = 0; n < link::channel_count; ++n) {
      out = out || (l.on(static_cast<link::channel>(n)) > 0 && among(n, l) < alone[n]);
    }
    return out;
  }
  template <class Among>
  constexpr bool slows(Among const& among) const {
    bool out = false;
    for (std::uint32_t const computes : {0U, 1U}) {
      for (std::uint32_t const exchanges : {0U, 1U}) {
        link::load const full{.host_to_device = 1,
                              .device_to_host = 1,
                              .collective = 2 + exchanges,
                              .device_memory = 1 - computes,
                              .host_memory = 1 - exchanges,
                              .compute = computes};
        out = out || slower(among, alone_, full);
      }
    }
    return out;
  }
  template <class Among>
  constexpr void tabulate(Among const& among) {
    for (std::uint32_t mix = 0; mix < detail::mix_count; ++mix) {
      link::load const l = detail::load_of(mix);
      for (std::size_t n = 0; n < link::channel_count && detail::possible(l); ++n) {
        bool const runs = l.on(static_cast<link::channel>(n)) > 0;
        table_[mix][n] = runs ? std::max<std::uint64_t>(among(n, l), 1) : 0;
      }
    }
    for (std::size_t n = 0; n < link::channel_count; ++n) {
      PROTRAIN_EXPECT(table_[detail::unit_of[n]][n] == alone(n),
                      "contention law: alone, the policy's own rate");
    }
  }

  cost::rates rates_{};
  row alone_{};
  bool contended_ = false;
  std::array<row, detail::mix_count> table_{};
};

}  // namespace protrain::inline v0::sim
