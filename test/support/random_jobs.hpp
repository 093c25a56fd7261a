// SPDX-License-Identifier: Apache-2.0
#pragma once
// Seeded random jobs, layouts and knobs: small enough to execute, odd enough to meet the corners.
// The same seed gives the same case everywhere: no generator or distribution of the library's.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/model/job.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"
#include "test/support/any_policy.hpp"
#include "test/support/saved_pieces.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace protrain::test {

/// splitmix64: every seed is good, also 0, 1, 2, ...
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  /// Uniform in [low, high]; the bias is below 2^-32 for the ranges of tests.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + next() % (high - low + 1);
  }
  std::uint32_t between32(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint32_t>(between(low, high));
  }
  /// True in `percent` of 100.
  bool chance(unsigned percent) { return next() % 100 < percent; }

 private:
  std::uint64_t state_;
};

/// A job and a way to run it; compile accepts every one.
struct random_case {
  std::uint64_t seed = 0;
  trace::trace facts{};
  chunk::layout layout{};
  schedule::knobs knobs{};
  any_eviction eviction{};
};

/// Cases that a test runs: `full`, divided by the environment variable PROTRAIN_TEST_SCALE.
inline std::uint64_t scaled(std::uint64_t full) {
  char const* scale = std::getenv("PROTRAIN_TEST_SCALE");
  std::uint64_t const by = scale == nullptr ? 1 : std::strtoull(scale, nullptr, 10);
  return by > 1 ? std::max<std::uint64_t>(full / by, 1) : full;
}

/// Of cases in a row, each met in several ways: all, but where tests are scaled down every seventh, so
/// that every way still meets cases of every kind.
struct turns {
  std::uint64_t stride = scaled(100) < 100 ? 7 : 1;
  std::uint64_t met = 0;

  bool next() { return met++ % stride == 0; }
};

namespace detail {

inline model::job random_job(random_source& r) {
  dtype const type = r.chance(50) ? dtype::f32 : dtype::bf16;
  return {.micro_batch = r.between(1, 3),
          .sequence = 4,
          .accumulate = r.chance(50) ? 1 : r.between(2, 4),
          .world = 1,
          .type = type,
          .state = model::default_state(type),
          .clip = r.chance(40) ? 1.0F : 0.0F,
          .skip = r.chance(10),
          .seed = r.next()};
}

inline bytes random_granules(random_source& r, unsigned zero_percent, std::uint64_t most) {
  return {r.chance(zero_percent) ? 0 : address_granule * r.between(1, most)};
}

/// Boundaries need not be multiples of a granule; saved tensors and scratch are.
inline trace::block_shape random_shape(random_source& r, bytes input, bytes output) {
  return {.name = "shape",
          .pinned = r.chance(15) ? static_cast<trace::pin>(r.between(1, 3)) : trace::pin::free,
          .forward = {r.between(1, 1000)},
          .backward = {r.between(1, 2000)},
          .input = input,
          .output = output,
          .saved = random_granules(r, 15, 8),
          .scratch_forward = random_granules(r, 30, 4),
          .scratch_backward = random_granules(r, 30, 4),
          .reads_input = r.chance(70)};
}

/// Save levels in half of the shapes. From dice of their own: what else a seed draws stays.
inline void add_random_levels(random_source& r, trace::trace& t) {
  for (trace::block_shape& s : t.shapes) {
    if (r.chance(50)) {
      std::uint32_t const levels = r.between32(1, 3);
      bytes const scratch = random_granules(r, 30, 4);
      add_levels(s, levels, scratch, {r.between(1, 300)}, r.chance(50));
    }
  }
}

/// In half of the cases every free, kept block at any of its levels.
inline std::vector<std::uint8_t> random_levels(
    random_source& r, trace::trace const& t, std::vector<activation::strategy> const& strategies) {
  std::vector<std::uint8_t> out;
  if (r.chance(50)) {
    return out;
  }
  for (std::size_t b = 0; b < strategies.size(); ++b) {
    trace::block_shape const& s = t.shape(make_id<block_id>(b));
    bool const may = s.pinned == trace::pin::free && strategies[b] == activation::strategy::keep;
    out.push_back(may ? static_cast<std::uint8_t>(r.between(0, s.levels.size())) : std::uint8_t{0});
  }
  return out;
}

inline bytes random_boundary(random_source& r, model::job const& j) {
  return {r.chance(8) ? 0 : 4 * j.micro_batch * r.between(1, 200)};
}

/// Mostly an embedding, a repeated body and a head; at times every block of its own shape.
inline void add_blocks(random_source& r, trace::trace& t) {
  std::size_t const n = r.between(1, 12);
  bool const uniform = r.chance(70);
  bytes const common = random_boundary(r, t.job);
  std::size_t body = 0;
  bytes input{};
  for (std::size_t b = 0; b < n; ++b) {
    bytes output = uniform ? common : random_boundary(r, t.job);
    output = b + 1 == n ? bytes{} : output;
    bool const repeats = uniform && b > 1 && b + 1 < n;
    if (!repeats) {
      t.shapes.push_back(random_shape(r, input, output));
    }
    body = b == 1 ? t.shapes.size() - 1 : body;
    t.blocks.push_back(make_id<shape_id>(repeats ? body : t.shapes.size() - 1));
    input = output;
  }
}

inline std::uint64_t random_elements(random_source& r) {
  std::uint64_t const kind = r.between(0, 99);
  if (kind < 10) {
    return 0;
  }
  if (kind < 40) {
    return r.between(1, 130);
  }
  return kind < 93 ? r.between(131, 1500) : r.between(4000, 9000);
}

/// A parameter that `block` owns; at times tied to later blocks.
inline model::parameter random_parameter(random_source& r,
                                         trace::trace const& t,
                                         std::size_t block) {
  std::uint64_t const n = random_elements(r);
  model::parameter p{.name = "p", .shape = {n}, .type = t.job.type};
  p.name += std::uint64_t{t.parameters.size()};
  if (n % 2 == 0 && r.chance(50)) {
    p.shape = {n / 2, 2};
  }
  p.decay = r.chance(50);
  p.uses.push_back(make_id<block_id>(block));
  bool const tied = r.chance(12);
  for (std::size_t b = block + 1; tied && b < t.blocks.size(); ++b) {
    if (r.chance(30)) {
      p.uses.push_back(make_id<block_id>(b));
    }
  }
  return p;
}

inline std::vector<std::uint8_t> random_persistence(random_source& r, chunk::layout const& l) {
  unsigned const percent = static_cast<unsigned>(r.between(0, 4)) * 25;
  std::vector<std::uint8_t> out;
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    out.push_back(r.chance(percent) ? 1 : 0);
  }
  return out;
}

inline std::vector<activation::strategy> random_strategies(random_source& r,
                                                           trace::trace const& t) {
  std::vector<trace::pin> const pins = activation::pins_of(t);
  auto const n = static_cast<std::uint32_t>(t.blocks.size());
  if (r.chance(50)) {
    return activation::interleaved{}.assign(pins,
                                            {.swap = r.between32(0, n),
                                             .checkpoint = r.between32(0, n),
                                             .interval = r.between32(1, 4)});
  }
  std::vector<activation::strategy> out = activation::keep_all{}.assign(pins, {});
  for (std::size_t b = 0; b < out.size(); ++b) {
    if (pins[b] == trace::pin::free) {
      out[b] = static_cast<activation::strategy>(r.between(0, 2));
    }
  }
  return out;
}

}  // namespace detail

/// 1 to 12 blocks; parameters of all sizes, also none, frozen ones and tied ones.
inline trace::trace random_trace(random_source& r) {
  trace::trace t{.from = trace::source::dry_run, .job = detail::random_job(r)};
  detail::add_blocks(r, t);
  t.batch = detail::random_granules(r, 15, 3);
  unsigned const frozen = r.chance(5) ? 100 : (r.chance(50) ? 25 : 0);
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    for (std::uint64_t n = r.between(0, 4); n > 0; --n) {
      t.parameters.push_back(detail::random_parameter(r, t, b));
      t.parameters.back().trainable = !r.chance(frozen);
    }
  }
  random_source levels(t.job.seed ^ 0x1E7E15ULL);
  detail::add_random_levels(levels, t);
  return t;
}

/// The same odd shapes with a tenth of the elements: where what is tested is the schedule.
inline trace::trace smaller(trace::trace t) {
  for (model::parameter& p : t.parameters) {
    std::uint64_t& extent = p.shape.front();
    extent = extent > 10 ? extent / 10 : extent;
  }
  return t;
}

/// Some of the chunks that the CPU updates are streamed instead, in half of the cases.
inline void stream_some(random_source& r, schedule::knobs& k) {
  unsigned const percent = r.chance(50) ? 0 : static_cast<unsigned>(r.between(1, 4)) * 25;
  for (update::site& s : k.sites) {
    s = s == update::site::cpu && r.chance(percent) ? update::site::streamed : s;
  }
  k.streaming_slots = r.between32(1, 4);
  k.stream_parts = r.between32(1, 9);
}

/// Capacities from one granule, where most tensors are oversize, to several blocks.
inline chunk::layout random_layout(random_source& r, trace::trace const& t) {
  std::uint64_t const capacity = r.chance(20) ? r.between(1, 600) : r.between(1000, 6000);
  return chunk::make_layout(t, capacity);
}

inline schedule::knobs random_knobs(random_source& r,
                                    trace::trace const& t,
                                    chunk::layout const& l) {
  schedule::knobs k{};
  k.persistent = detail::random_persistence(r, l);
  for (std::uint8_t const stays : k.persistent) {
    k.sites.push_back(stays != 0 ? update::site::gpu : update::site::cpu);
  }
  k.strategies = detail::random_strategies(r, t);
  std::uint32_t const fewest = schedule::fewest_buffers(l, k.persistent);
  std::uint32_t const most = std::max(fewest, schedule::most_buffers(l, k.persistent));
  k.buffers = r.chance(40) ? fewest : r.between32(fewest, most);
  k.swap_ahead = r.between32(0, 3);
  k.gradient_slots = r.between32(2, 4);
  random_source levels(t.job.seed ^ (0x1E7E15ULL + k.buffers));
  k.levels = detail::random_levels(levels, t, k.strategies);
  bool const early = r.chance(50) && update::allowed(update::timing::during_backward, t.job);
  k.time = early ? update::timing::during_backward : update::timing::after_backward;
  stream_some(r, k);
  return k;
}

inline random_case make_case(std::uint64_t seed) {
  random_source r(seed);
  random_case c{.seed = seed, .facts = random_trace(r)};
  c.layout = random_layout(r, c.facts);
  c.knobs = random_knobs(r, c.facts, c.layout);
  c.eviction.kind = r.between32(0, eviction_kinds - 1);
  return c;
}

/// A case over several ranks in two of three, with updates that are left to the next step in half,
/// and programs of few micro-batches in half.
inline random_case make_ranked_case(std::uint64_t seed) {
  random_source r(seed);
  random_source more(~seed);
  random_case c{.seed = seed, .facts = random_trace(r)};
  c.facts.job.world = more.chance(33) ? 1 : more.between(2, 7);
  c.layout = random_layout(r, c.facts);
  c.knobs = random_knobs(r, c.facts, c.layout);
  if (more.chance(50)) {
    c.knobs.time = update::timing::before_next_use;
    c.knobs.defer = more.chance(40) ? 99 : more.between32(0, 5);
  }
  if (more.chance(50)) {
    c.facts.job.accumulate = more.between(2, 9);
    c.knobs.unroll = more.between32(1, 4);
  }
  c.eviction.kind = more.between32(0, eviction_kinds - 1);
  return c;
}

}  // namespace protrain::test
