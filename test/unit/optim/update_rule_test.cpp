// SPDX-License-Identifier: Apache-2.0
// The laws over the rules that ship, a rule with no state and a rule with one state tensor.

#include "protrain/optim/update_rule.hpp"

#include "protrain/optim/adamw.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/sgd.hpp"
#include "protrain/optim/update.hpp"
#include "test/law/update_rule.hpp"

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

enum class breach : std::uint8_t { steps_differ, elements_differ, denormals, any_nan };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = optim::update_rule_tag;
  using step_type = heavy_ball::step_type;
  static constexpr std::size_t state_tensors = 1;

  step_type prepare(double lr, std::int64_t t, bool decay) const {
    static float calls = 0;
    step_type out = heavy_ball{}.prepare(lr, t, decay);
    out.lr += How == breach::steps_differ ? (calls += 1) : 0.0F;
    return out;
  }
  static void element(step_type const& step,
                      float s,
                      float g,
                      float& p,
                      optim::element_state<lawless>& state) noexcept {
    static float calls = 0;
    float const m = optim::fused(step.momentum, state[0], optim::product(s, g));
    float const moved = optim::fused(-step.lr, m, p);
    p = How == breach::any_nan ? moved : optim::canonical(moved);
    p += How == breach::elements_differ ? (calls += 1) : 0.0F;
    state[0] = How == breach::denormals ? optim::canonical(m) : optim::stored_state(m);
  }
  bool operator==(lawless const&) const = default;
};

}  // namespace

TEST_CASE_TEMPLATE_INVOKE(
    protrain::test::update_rule_laws, optim::adamw, optim::sgd, descent, heavy_ball);

TEST_CASE("the laws hold for other values of AdamW") {
  CHECK(protrain::test::broken_update_rule_law(optim::adamw{.beta1 = 0, .beta2 = 0.95}) == "");
}

TEST_CASE("rules that break a law are found out") {
  using protrain::test::broken_update_rule_law;
  CHECK(broken_update_rule_law(lawless<breach::steps_differ>{}) ==
        "equal rules prepare equal steps");
  CHECK(broken_update_rule_law(lawless<breach::elements_differ>{}) ==
        "element is a function of its arguments' bits");
  CHECK(broken_update_rule_law(lawless<breach::denormals>{}) ==
        "no denormal state, everything finite");
  CHECK(broken_update_rule_law(lawless<breach::any_nan>{}) == "no NaN but 0x7FC00000");
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
