// SPDX-License-Identifier: Apache-2.0
#pragma once
// From job, layout and knobs to a program. The answer depends on nothing else: no budget, no
// duration, no rate.

#include "protrain/core/result.hpp"
#include "protrain/schedule/detail/compiler.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace protrain::inline v0::schedule {

namespace detail {

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
  for (std::size_t c = 0; c < chunks; ++c) {
    if (l.chunks[c].elements % checked_mul(element_granule, t.job.world) != 0) {
      return {errc::invalid_argument, "the layout is for another number of ranks", c};
    }
    if ((k.persistent[c] != 0) != (k.sites[c] == update::site::gpu)) {
      return {errc::not_allowed, "a chunk is updated where it lives in this version", c};
    }
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
  if (t.blocks.size() * t.job.accumulate > std::numeric_limits<std::uint32_t>::max() / 64) {
    return {errc::out_of_range, "too many micro-batches for one program", t.job.accumulate};
  }
  return {};
}

}  // namespace detail

/// The program of one segment, by default of a step. Fails with `not_allowed` or `out_of_range` where the knobs contradict
/// the job or each other; `error::number` is the offending number. O(instructions x live
/// allocations).
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<program> compile(trace::trace const& t,
                                  chunk::layout const& l,
                                  knobs const& k,
                                  Eviction const& policy = {},
                                  segment part = segment::step) {
  if (error const wrong = detail::check_knobs(t, l, k); wrong.code != errc::none) {
    return wrong;
  }
  auto const bytes = update::bytes_of(t.job);
  if (!bytes) {
    return bytes.failure();
  }
  return detail::compiler<Eviction>(t, l, k, *bytes, policy, part).run();
}

/// All segments of a job: step, resume and flush where updates are deferred, evaluate.
template <chunk::eviction_policy Eviction = chunk::execution_order>
constexpr result<std::vector<program>> compile_segments(trace::trace const& t,
                                                        chunk::layout const& l,
                                                        knobs const& k,
                                                        Eviction const& policy = {}) {
  std::vector<program> out{};
  for (segment const part : {segment::step, segment::resume, segment::flush, segment::evaluate}) {
    bool const defers =
        !out.empty() && std::ranges::find(out.front().deferred, 1) != out.front().deferred.end();
    if (resumes(part) && !defers) {
      continue;
    }
    auto one = compile(t, l, k, policy, part);
    if (!one) {
      return one.failure();
    }
    out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace protrain::inline v0::schedule
