// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answer of planning: decisions, the numbers that they came from, and what they are predicted
// to cost.

#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/plan/size.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/timing.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace protrain::inline v0::plan {

/// What the plan string holds. With the job and the policies they determine the knobs.
struct numbers {
  std::uint32_t persist = 0;
  std::uint32_t buffer = 0;
  std::uint32_t swap = 0;
  std::uint32_t checkpoint = 0;
  std::uint32_t interval = 1;
  std::uint64_t chunk = 0;            ///< bytes of values in a regular chunk
  std::uint32_t defer = 0;            ///< chunks whose updates are left to the next step
  std::uint32_t moving = 0;           ///< chunks that train and aren't persistent
  std::uint32_t streamed = 0;         ///< of those, updated on the device
  std::uint32_t streaming_slots = 0;  ///< 0 if none is
  std::uint32_t gradient_slots = 2;
  std::uint32_t unroll = schedule::default_unroll;  ///< micro-batches of a program, at most
  update::timing time = update::timing::after_backward;
  std::array<std::uint32_t, trace::most_levels> levels{};  ///< blocks at save level 1, 2, ...
  std::uint32_t depth = 0;                                 ///< levels that there are to choose
  std::vector<std::uint32_t> persist_set{};                ///< the persistent chunks, if `listed`
  bool listed = false;  ///< they are not what the placement policy chooses, or no prefix
  bool operator==(numbers const&) const = default;
};

namespace detail {

/// a:b:...
template <class Counts>
constexpr void append_levels(text& out, Counts const& levels, std::size_t depth) {
  for (std::size_t k = 0; k < depth; ++k) {
    out += k == 0 ? std::string_view{} : std::string_view(":");
    out += std::uint64_t{levels[k]};
  }
}

}  // namespace detail

/// The plan string; `parse` reads it back. Programs of the usual length go without saying.
constexpr text print(numbers const& n) {
  text out;
  auto const put = [&](std::string_view key, std::uint64_t value) {
    out += out.empty() ? std::string_view{} : std::string_view(",");
    out += key;
    out += "=";
    out += value;
  };
  if (n.listed) {
    out += "persist=";
    for (std::size_t i = 0; i < n.persist_set.size(); ++i) {
      out += std::uint64_t{n.persist_set[i]};
      out += i + 1 < n.persist_set.size() || i == 0 ? std::string_view(":") : std::string_view{};
    }
  } else {
    put("persist", n.persist);
  }
  put("buffer", n.buffer);
  put("swap", n.swap);
  put("checkpoint", n.checkpoint);
  put("interval", n.interval);
  out += ",chunk=";
  append_size(out, n.chunk);
  out += ",update=";
  if (n.streamed > 0 && n.streamed < n.moving) {
    out += "split:";
    out += std::uint64_t{n.streamed};
  } else {
    out += n.streamed > 0 ? "streamed" : "cpu";
  }
  put("defer", n.defer);
  if (n.depth > 0) {
    out += ",levels=";
    detail::append_levels(out, n.levels, n.depth);
  }
  put("slots", n.gradient_slots);
  out += ":";
  out += std::uint64_t{n.streaming_slots};
  out += ",time=";
  out += update::name_of(n.time);
  if (n.unroll != schedule::default_unroll) {
    put("unroll", n.unroll);
  }
  return out;
}

/// One step as the simulation sees it.
struct prediction {
  picoseconds iteration{};
  picoseconds bound{};  ///< no program of these knobs takes less
  sim::per_phase<picoseconds> phases{};
  sim::per_phase<queue_id> phase_bound_by{};
  queue_id bound_by = queue_id::compute;
  sim::per_queue<picoseconds> busy{};
  sim::per_queue<picoseconds> exposed{};
  schedule::memory_report device{};
  schedule::memory_report host{};  ///< of one rank
  bool operator==(prediction const&) const = default;
};

/// Another plan that fits, to compare.
struct alternative {
  text name{};  ///< of a fixed policy; empty for one that the search met
  numbers at{};
  picoseconds iteration{};
  std::uint64_t device_peak = 0;
  std::uint64_t host_peak = 0;
  bool operator==(alternative const&) const = default;
};

/// How the search went.
struct search_facts {
  std::uint32_t candidates = 0;  ///< knobs that a bound was computed for
  std::uint32_t compiled = 0;    ///< programs
  bool proven = false;           ///< no plan of the searched space is predicted faster
  picoseconds bound{};           ///< no plan of the searched space is predicted below this
  bool operator==(search_facts const&) const = default;
};

/// A plan for one job. It compiles to its program, always the same one.
struct plan {
  trace::trace trace{};
  chunk::layout layout{};
  schedule::knobs knobs{};
  numbers at{};
  text sizing{};  ///< how the chunk capacity was found: `policy` or `given`
  prediction predicted{};
  std::vector<alternative> runner_up{};  ///< fixed policies that fit, then the next best
  search_facts search{};
  std::vector<text> changed{};  ///< requested values that were clamped, as "persist 999 -> 12"
  bool operator==(plan const&) const = default;

  /// The program of a step, where one program is enough for its micro-batches. `policy` is the
  /// eviction policy of the bundle that made the plan.
  template <chunk::eviction_policy Eviction = chunk::execution_order>
  constexpr result<schedule::program> compile(Eviction const& policy = {}) const {
    return schedule::compile(trace, layout, knobs, policy);
  }
  /// All segments of the job, what begins a step first.
  template <chunk::eviction_policy Eviction = chunk::execution_order>
  constexpr result<std::vector<schedule::program>> segments(Eviction const& policy = {}) const {
    return schedule::compile_segments(trace, layout, knobs, policy);
  }
  /// The plan string.
  constexpr text string() const { return print(at); }
};

}  // namespace protrain::inline v0::plan
