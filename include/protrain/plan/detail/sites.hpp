// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which chunks a site policy streams.

#include "protrain/cost/step.hpp"
#include "protrain/update/site.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Chunks that train and aren't persistent.
constexpr std::uint32_t moving_chunks(cost::step const& s,
                                      std::vector<std::uint8_t> const& persistent) {
  std::uint32_t moving = 0;
  for (std::size_t c = 0; c < persistent.size(); ++c) {
    moving += persistent[c] == 0 && s.chunks[c].updated ? 1U : 0U;
  }
  return moving;
}

/// By chunk: 1 for the `streamed` ones that the policy chooses.
template <update::site_policy Site>
constexpr std::vector<std::uint8_t> streamed_flags(Site const& policy,
                                                   cost::step const& s,
                                                   std::vector<std::uint8_t> const& persistent,
                                                   std::uint32_t streamed) {
  std::vector<std::uint8_t> out(persistent.size(), 0);
  update::site_facts f{.moving = moving_chunks(s, persistent), .streamed = streamed};
  std::uint32_t count = 0;
  for (std::size_t c = 0; c < persistent.size(); ++c) {
    if (!s.chunks[c].updated) {
      continue;
    }
    f.persistent = persistent[c] != 0;
    update::site const where = policy.choose(f);
    PROTRAIN_EXPECT(f.persistent == (where == update::site::gpu),
                    "site law: a persistent chunk, and no other, updates on the GPU");
    out[c] = where == update::site::streamed ? 1 : 0;
    count += out[c];
    f.position += f.persistent ? 0U : 1U;
  }
  PROTRAIN_EXPECT(count == streamed, "site law: another number of streamed chunks than asked for");
  return out;
}

}  // namespace protrain::inline v0::plan::detail
