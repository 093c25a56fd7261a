// SPDX-License-Identifier: Apache-2.0
// The concept over AdamW, a rule with no state and a rule with one state tensor.

#include "protrain/optim/update_rule.hpp"

#include "protrain/optim/adamw.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/update.hpp"
#include "test/unit/optim/support.hpp"
#include "test/unit/optim/update_rule_laws.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace update_rule_test {

namespace {

namespace optim = protrain::optim;

/// The least that models the concept.
struct descent {
  using policy_tag = optim::update_rule_tag;
  using step_type = float;  // the learning rate
  static constexpr std::size_t state_tensors = 0;

  step_type prepare(double lr, std::int64_t /*t*/, bool /*decay*/) const {
    return static_cast<float>(lr);
  }
  static void element(
      float step, float s, float g, float& p, optim::element_state<descent>& /*none*/) noexcept {
    p = optim::canonical(optim::fused(-step, optim::product(s, g), p));
  }
  bool operator==(descent const&) const = default;
};
static_assert(optim::update_rule<descent>);

struct heavy_ball {
  using policy_tag = optim::update_rule_tag;
  struct step_type {
    float lr = 0;
    float momentum = 0;
    bool operator==(step_type const&) const = default;
  };
  static constexpr std::size_t state_tensors = 1;
  double momentum = 0.9;

  step_type prepare(double lr, std::int64_t /*t*/, bool /*decay*/) const {
    return {static_cast<float>(lr), static_cast<float>(momentum)};
  }
  static void element(step_type const& step,
                      float s,
                      float g,
                      float& p,
                      optim::element_state<heavy_ball>& state) noexcept {
    float const m = optim::fused(step.momentum, state[0], optim::product(s, g));
    p = optim::canonical(optim::fused(-step.lr, m, p));
    state[0] = optim::stored_state(m);
  }
  bool operator==(heavy_ball const&) const = default;
};
static_assert(optim::update_rule<heavy_ball>);

struct no_consent : descent {
  using policy_tag = void;
};
struct throwing : descent {
  static void element(float, float, float, float&, optim::element_state<descent>&) {}
};
static_assert(!optim::update_rule<no_consent>);
static_assert(!optim::update_rule<throwing>);
static_assert(!optim::update_rule<int>);

}  // namespace

TEST_CASE("the laws hold for AdamW") {
  protrain_test::check_update_rule_laws(optim::adamw{});
  protrain_test::check_update_rule_laws(optim::adamw{.beta1 = 0, .beta2 = 0.95});
}

TEST_CASE("the laws hold for a rule with no state and for one with momentum") {
  protrain_test::check_update_rule_laws(descent{});
  protrain_test::check_update_rule_laws(heavy_ball{});
}

TEST_CASE("the loops drive any rule") {
  std::vector<float> const g{1.0F, 2.0F, 3.0F};
  std::vector<float> p(3, 0.0F);
  optim::update_fp32<descent>(0.5F, 1.0F, g.data(), p.data(), {}, 3);
  CHECK(p == std::vector<float>{-0.5F, -1.0F, -1.5F});
  std::vector<float> m(3, 1.0F);
  optim::update_fp32<heavy_ball>({0.5F, 0.5F}, 2.0F, g.data(), p.data(), {m.data()}, 3);
  CHECK(m == std::vector<float>{2.5F, 4.5F, 6.5F});
  CHECK(p == std::vector<float>{-1.75F, -3.25F, -4.75F});
}

}  // namespace update_rule_test
