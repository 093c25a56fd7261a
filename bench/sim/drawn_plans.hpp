// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs and plans drawn from what a plan can say under the default policies, for blocks without save
// levels: placement and eviction are the paper's, levels are absent.

#include "bench/sim/waiting_model.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/update/timing.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace protrain::bench {

/// Copies, updates and passes all take a few ms, so that each of them bounds some plan, and late
/// sleepers count for little: a chunk in fp32 goes up in 4.3 ms, comes back in 3.5 ms and is updated
/// on the host in 3.8 ms.
inline hw::machine waiting_machine() {
  return {.name = "waiting",
          .source = "constants by definition",
          .device_memory = 1_GiB,
          .host_memory = 1_GiB,
          .host_to_device = {8'000'000},
          .device_to_host = {10'000'000},
          .copy_latency = 200_us,
          .device_bandwidth = {400'000'000},
          .host_bandwidth = {60'000'000},
          .collective = {8'000'000}};
}

inline waiting_config waiting_sizes(std::int64_t layers) {
  return {.layers = layers,
          .parameters = 8192,
          .boundary = 2048,
          .saved = 8192,
          .ends = {.forward = 2_ms, .backward = 4_ms},
          .layer = {.forward = 3_ms, .backward = 6_ms}};
}

struct drawn_plan {
  std::int64_t layers = 1;
  model::job job{};
  plan::request wanted{};

  std::string job_string() const {
    return "layers=" + std::to_string(layers) + ",accumulate=" + std::to_string(job.accumulate) +
           ",clip=" + (job.clip > 0 ? "1" : "0") + "," + std::string(name_of(job.type));
  }
};

/// splitmix64: the same plans everywhere.
class drawing {
 public:
  explicit drawing(std::uint64_t seed) : state_(seed) {}

  /// Plan number `n`: jobs take turns, the plan's numbers are drawn, all of them.
  drawn_plan draw(std::size_t n) {
    constexpr std::array<std::uint64_t, 5> accumulate{1, 2, 1, 3, 5};
    dtype const type = n % 4 == 3 ? dtype::bf16 : dtype::f32;
    drawn_plan out{.job = {.sequence = waiting_batch_bytes,
                           .accumulate = accumulate[n % accumulate.size()],
                           .type = type,
                           .state = model::default_state(type),
                           .clip = n % 3 == 2 ? 1.0F : 0.0F}};
    out.layers =
        static_cast<std::int64_t>(out.job.accumulate == 1 ? between(6, 10) : between(2, 4));
    auto const blocks = static_cast<std::uint64_t>(out.layers) + 2;
    std::uint64_t const chunk = waiting_sizes(1).parameters * size_of(type);
    out.wanted = {.persist = between(0, blocks),
                  .buffer = between(1, 4),
                  .swap = between(0, 3),
                  .checkpoint = between(0, blocks),
                  .interval = between(1, 3),
                  .chunk = chunk,
                  .defer = 0,
                  .streamed = between(0, 1) * between(0, blocks),  // none in every second plan
                  .gradient_slots = between(2, 3),
                  .streaming_slots = between(1, 3),
                  .unroll = std::uint64_t{1} << between(0, 2),
                  .time = static_cast<update::timing>(between(out.job.clip > 0 ? 1 : 0, 2))};
    if (out.wanted.time == update::timing::before_next_use) {
      out.wanted.defer = between(0, blocks);
    }
    return out;
  }

 private:
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return low + (z ^ (z >> 31U)) % (high - low + 1);
  }

  std::uint64_t state_;
};

}  // namespace protrain::bench
