// SPDX-License-Identifier: Apache-2.0
#pragma once
// From job, layout and knobs to a program. The answer depends on nothing else: no budget, no
// duration, no rate.

#include "protrain/core/result.hpp"
#include "protrain/schedule/detail/compiler.hpp"
#include "protrain/schedule/spans.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace protrain::inline v0::schedule {

namespace detail {

constexpr error check_levels(trace::trace const& t, knobs const& k) {
  if (!k.levels.empty() && k.levels.size() != t.blocks.size()) {
    return {errc::invalid_argument, "one save level per block, or none", t.blocks.size()};
  }
  for (std::size_t b = 0; b < k.levels.size(); ++b) {
    if (k.levels[b] > t.shapes[t.blocks[b].index()].levels.size()) {
      return {errc::out_of_range, "a block has no such save level", b};
    }
    if (k.levels[b] > 0 && k.strategies[b] != activation::strategy::keep) {
      return {errc::not_allowed, "only a block that is kept has a save level", b};
    }
  }
  return {};
}

constexpr error check_chunks(trace::trace const& t, chunk::layout const& l, knobs const& k) {
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    if (l.chunks[c].elements % checked_mul(element_granule, t.job.world) != 0) {
      return {errc::invalid_argument, "the layout is for another number of ranks", c};
    }
    if ((k.persistent[c] != 0) != (k.sites[c] == update::site::gpu)) {
      return {errc::not_allowed,
              "a persistent chunk is updated on the device, another on the host or streamed",
              c};
    }
    if (k.sites[c] == update::site::streamed && (k.streaming_slots == 0 || k.stream_parts == 0)) {
      return {errc::out_of_range, "a streamed chunk needs a slot, and consists of parts", c};
    }
  }
  return {};
}

constexpr error check_knobs(trace::trace const& t, chunk::layout const& l, knobs const& k) {
  std::size_t const chunks = l.chunks.size();
  if (t.job.world == 0 || t.job.world > std::numeric_limits<std::uint32_t>::max()) {
    return {errc::invalid_argument, "a job needs a rank", t.job.world};
  }
  if (t.blocks.empty() || t.job.accumulate == 0 || t.job.micro_batch == 0) {
    return {errc::invalid_argument, "a job needs a block, a micro-batch and a sample", 0};
  }
  if (k.persistent.size() != chunks || k.sites.size() != chunks) {
    return {errc::invalid_argument, "one persistence and one update site per chunk", chunks};
  }
  if (k.strategies.size() != t.blocks.size()) {
    return {errc::invalid_argument, "one strategy per block", t.blocks.size()};
  }
  if (error const wrong = check_levels(t, k); wrong.code != errc::none) {
    return wrong;
  }
  if (error const wrong = check_chunks(t, l, k); wrong.code != errc::none) {
    return wrong;
  }
  if (k.buffers < fewest_buffers(l, k.persistent)) {
    return {errc::out_of_range, "fewer buffers than one block needs", k.buffers};
  }
  if (k.gradient_slots < 2) {
    return {errc::out_of_range, "at least two gradient slots", k.gradient_slots};
  }
  for (std::size_t i = 0; i < t.parameters.size(); ++i) {
    if (t.parameters[i].type != t.job.type) {
      return {errc::not_allowed, "a parameter of another dtype than the job's", i};
    }
  }
  if (k.defer > 0 && k.time != update::timing::before_next_use) {
    return {errc::not_allowed, "only updates before the next use can be deferred", k.defer};
  }
  if (!update::allowed(k.time, t.job)) {
    return {errc::not_allowed, "the job needs the norm: updates wait for the end of backward", 0};
  }
  if (k.unroll == 0) {
    return {errc::out_of_range, "a program runs at least one micro-batch", k.unroll};
  }
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max() / 64;
  if (t.job.accumulate > most / t.blocks.size()) {  // contributions are counted in 32 bits
    return {errc::out_of_range, "too many micro-batches", t.job.accumulate};
  }
  return {};
}

}  // namespace detail

/// Whether a job has such a segment: a step is whole or cut, and there is nothing to resume where
/// nothing is deferred.
constexpr bool has_segment(segment part, cut const& c, bool defers) {
  if (part == segment::middle) {
    return c.middles > 0;
  }
  bool const exists = !trains(part) || whole(part) == c.whole();
  return exists && (defers || !resumes(part));
}

/// The program of one segment: by default of a step, which has to be whole then. Fails with
/// `not_allowed` or `out_of_range` where the knobs contradict the job or each other;
/// `error::number` is the offending number. `known` is `prepare` of the same trace and layout.
/// O(instructions x live allocations).
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<program> compile(prepared const& known,
                                  trace::trace const& t,
                                  chunk::layout const& l,
                                  knobs const& k,
                                  Eviction const& policy = {},
                                  segment part = segment::step) {
  if (error const wrong = detail::check_knobs(t, l, k); wrong.code != errc::none) {
    return wrong;
  }
  cut const c = cut_step(t.job.accumulate, k.unroll);
  if (trains(part) && !has_segment(part, c, true)) {
    return error{errc::not_allowed,
                 "no such segment: the step's micro-batches are cut otherwise",
                 t.job.accumulate};
  }
  auto const bytes = update::bytes_of(t.job);
  if (!bytes) {
    return bytes.failure();
  }
  return detail::compiler<Eviction>(known, t, l, k, *bytes, policy, part).run();
}
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<program> compile(trace::trace const& t,
                                  chunk::layout const& l,
                                  knobs const& k,
                                  Eviction const& policy = {},
                                  segment part = segment::step) {
  return compile(prepare(t, l), t, l, k, policy, part);
}

/// The programs of one step in the order in which they run: one, or first, middle and last. With
/// `resumed` it begins with what the step before left over.
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<std::vector<program>> compile_step(prepared const& known,
                                                    trace::trace const& t,
                                                    chunk::layout const& l,
                                                    knobs const& k,
                                                    Eviction const& policy = {},
                                                    bool resumed = false) {
  cut const c = cut_step(t.job.accumulate, std::max<std::uint32_t>(1, k.unroll));
  std::vector<program> out{};
  for (segment const part : {segment::step,
                             segment::resume,
                             segment::first,
                             segment::first_resumed,
                             segment::middle,
                             segment::last}) {
    bool const begins = part != segment::middle && part != segment::last;
    if (!has_segment(part, c, true) || (begins && resumes(part) != resumed)) {
      continue;
    }
    auto one = compile(known, t, l, k, policy, part);
    if (!one) {
      return one.failure();
    }
    out.push_back(std::move(*one));
  }
  return out;
}
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<std::vector<program>> compile_step(trace::trace const& t,
                                                    chunk::layout const& l,
                                                    knobs const& k,
                                                    Eviction const& policy = {},
                                                    bool resumed = false) {
  return compile_step(prepare(t, l), t, l, k, policy, resumed);
}

/// All segments of a job: step, or first, middle and last where it is cut; resume or first_resumed
/// and flush where updates are deferred; evaluate.
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<std::vector<program>> compile_segments(trace::trace const& t,
                                                        chunk::layout const& l,
                                                        knobs const& k,
                                                        Eviction const& policy = {}) {
  std::vector<program> out{};
  prepared const known = prepare(t, l);
  cut const c = cut_step(t.job.accumulate, std::max<std::uint32_t>(1, k.unroll));
  for (segment const part : {segment::step,
                             segment::first,
                             segment::resume,
                             segment::first_resumed,
                             segment::middle,
                             segment::last,
                             segment::flush,
                             segment::evaluate}) {
    bool const defers =
        !out.empty() && std::ranges::find(out.front().deferred, 1) != out.front().deferred.end();
    if (!has_segment(part, c, defers)) {
      continue;
    }
    auto one = compile(known, t, l, k, policy, part);
    if (!one) {
      return one.failure();
    }
    out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace protrain::inline v0::schedule
