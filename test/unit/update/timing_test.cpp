// SPDX-License-Identifier: Apache-2.0
// Update times: the laws over shipped and foreign policies.

#include "protrain/update/timing.hpp"

#include "test/law/update.hpp"

#include <doctest/doctest.h>

namespace timing_test {

namespace {

using namespace protrain;

/// The least that is a policy.
struct latest {
  using policy_tag = update::timing_tag;
  update::timing choose(model::job const&) const noexcept { return update::timing::after_backward; }
  bool operator==(latest const&) const = default;
};

/// A policy with a value.
struct early_below {
  using policy_tag = update::timing_tag;
  std::uint64_t accumulate = 2;
  update::timing choose(model::job const& j) const noexcept {
    return needs_norm(j) || j.accumulate >= accumulate ? update::timing::after_backward
                                                       : update::timing::during_backward;
  }
  bool operator==(early_below const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::timing_laws,
                          update::before_next_use,
                          update::during_backward,
                          update::after_backward,
                          latest,
                          early_below);

enum class breach : std::uint8_t { never_waits, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = update::timing_tag;
  update::timing choose(model::job const& j) const noexcept {
    static unsigned calls = 0;
    bool const early = How == breach::never_waits || (!needs_norm(j) && ++calls % 2 != 0);
    return early ? update::timing::during_backward : update::timing::after_backward;
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of update times are found out") {
  CHECK(test::broken_timing_law(lawless<breach::never_waits>{}) == "the answer is allowed");
  CHECK(test::broken_timing_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

TEST_CASE("the paper's time waits only where the norm must be known") {
  CHECK(update::during_backward{}.choose({}) == update::timing::during_backward);
  CHECK(update::during_backward{}.choose({.clip = 1}) == update::timing::after_backward);
  CHECK(update::during_backward{}.choose({.skip = true}) == update::timing::after_backward);
  CHECK(update::after_backward{}.choose({}) == update::timing::after_backward);
  CHECK(name_of(update::timing::during_backward) == "during_backward");
  CHECK(name_of(update::timing::after_backward) == "after_backward");
}

}  // namespace

}  // namespace timing_test
