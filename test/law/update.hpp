// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of update::site_policy and update::timing_policy. Policies under test are
// default-constructible.

#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace protrain::test {

TEST_CASE_TEMPLATE_DEFINE("laws of an update site policy", P, site_laws) {
  static_assert(update::site_policy<P>);
  P const policy{};
  for (std::uint32_t moving = 0; moving <= 12; ++moving) {
    CAPTURE(moving);
    CHECK(policy.choose({.persistent = true, .moving = moving}) == update::site::gpu);
    REQUIRE(policy.most_streamed(moving) <= moving);
    CHECK(policy.most_streamed(moving) == P(policy).most_streamed(moving));
    for (std::uint32_t streamed = 0; streamed <= policy.most_streamed(moving); ++streamed) {
      std::uint32_t count = 0;
      for (std::uint32_t at = 0; at < moving; ++at) {
        update::site_facts const f{.position = at, .moving = moving, .streamed = streamed};
        CHECK(policy.choose(f) != update::site::gpu);
        CHECK(policy.choose(f) == P(policy).choose(update::site_facts(f)));
        count += policy.choose(f) == update::site::streamed ? 1U : 0U;
      }
      CHECK(count == streamed);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("laws of an update timing policy", P, timing_laws) {
  static_assert(update::timing_policy<P>);
  P const policy{};
  for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
    for (float const clip : {0.0F, 1.0F}) {
      for (bool const skip : {false, true}) {
        model::job const j{.type = type, .clip = clip, .skip = skip};
        CHECK(update::allowed(policy.choose(j), j));
        CHECK(policy.choose(j) == P(policy).choose(model::job(j)));
      }
    }
  }
}

}  // namespace protrain::test
