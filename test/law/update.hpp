// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of update::site_policy and update::timing_policy. Policies under test are
// default-constructible.

#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace protrain::test {

/// The first law that `policy` breaks; empty if it keeps them all.
template <update::site_policy P>
std::string broken_site_law(P const& policy) {
  for (std::uint32_t moving = 0; moving <= 12; ++moving) {
    if (policy.choose({.persistent = true, .moving = moving}) != update::site::gpu) {
      return "a persistent chunk updates on the GPU";
    }
    std::uint32_t const most = policy.most_streamed(moving);
    if (most > moving) {
      return "never more than are moving";
    }
    if (most != P(policy).most_streamed(moving)) {
      return "equal inputs, equal answers";
    }
    for (std::uint32_t streamed = 0; streamed <= most; ++streamed) {
      std::uint32_t count = 0;
      for (std::uint32_t at = 0; at < moving; ++at) {
        update::site_facts const f{.position = at, .moving = moving, .streamed = streamed};
        update::site const chosen = policy.choose(f);
        if (chosen != P(policy).choose(update::site_facts(f))) {
          return "equal inputs, equal answers";
        }
        if (chosen == update::site::gpu) {
          return "a chunk that isn't persistent doesn't update on the GPU";
        }
        count += chosen == update::site::streamed ? 1U : 0U;
      }
      if (count != streamed) {
        return "as many are streamed as the facts say";
      }
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an update site policy", P, site_laws) {
  CHECK(broken_site_law(P{}) == "");
}

/// The first law that `policy` breaks; empty if it keeps them all.
template <update::timing_policy P>
std::string broken_timing_law(P const& policy) {
  for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
    for (float const clip : {0.0F, 1.0F}) {
      for (bool const skip : {false, true}) {
        model::job const j{.type = type, .clip = clip, .skip = skip};
        update::timing const chosen = policy.choose(j);
        if (chosen != P(policy).choose(model::job(j))) {
          return "equal inputs, equal answers";
        }
        if (!update::allowed(chosen, j)) {
          return "the answer is allowed";
        }
      }
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an update timing policy", P, timing_laws) {
  CHECK(broken_timing_law(P{}) == "");
}

}  // namespace protrain::test
