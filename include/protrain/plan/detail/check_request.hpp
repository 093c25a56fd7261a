// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a request may ask of a job under a bundle.

#include "protrain/core/result.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <cstdint>
#include <limits>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Why a request can't be planned for; no error where it can. `levels`: the bundle places them.
template <class Format>
constexpr error check_request(request const& r,
                              trace::trace const& facts,
                              std::vector<std::uint8_t> const& depths,
                              bool levels) {
  if (facts.job.world == 0 || facts.job.world > std::numeric_limits<std::uint32_t>::max()) {
    return {errc::invalid_argument, "a job needs a rank", facts.job.world};
  }
  if (facts.blocks.empty() || facts.job.accumulate == 0 || facts.job.micro_batch == 0) {
    return {errc::invalid_argument, "a job needs a block, a micro-batch and a sample", 0};
  }
  for (std::uint8_t const depth : depths) {
    if (depth > trace::most_levels) {
      return {errc::invalid_argument, "a block has at most four save levels", depth};
    }
  }
  if (auto const bytes = update::bytes_of(facts.job); !bytes) {
    return bytes.failure();
  }
  if (!fits_format<Format>(facts.job)) {
    return {errc::not_allowed, "the bundle names another state format than the job's", 0};
  }
  if (!levels && r.levels && *r.levels != level_counts{}) {
    return {errc::not_allowed, levels_need_policy, 0};
  }
  if (r.time && !update::allowed(*r.time, facts.job)) {
    return {errc::not_allowed, time_needs_norm, 0};
  }
  if (r.defer.value_or(0) > 0 && r.time && *r.time != update::timing::before_next_use) {
    return {errc::not_allowed, defer_needs_time, *r.defer};
  }
  return {};
}

}  // namespace protrain::inline v0::plan::detail
