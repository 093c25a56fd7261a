// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of update::site_policy and update::timing_policy. Policies under test are
// default-constructible.

#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

namespace protrain::test {

TEST_CASE_TEMPLATE_DEFINE("laws of an update site policy", P, site_laws) {
  static_assert(update::site_policy<P>);
  P const policy{};
  CHECK(policy.choose(true) == update::site::gpu);
  for (bool const persistent : {false, true}) {
    CHECK(policy.choose(persistent) == P(policy).choose(persistent));
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
