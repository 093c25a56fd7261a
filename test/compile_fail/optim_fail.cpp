// SPDX-License-Identifier: Apache-2.0
// Loops over elements refuse what is no rule, what memory doesn't hold, what would be rounded on its
// way to fp32, and what holds no masters.
// expect: no type named .policy_tag.
// and: requires +stored_float<T>|does not satisfy .stored_float.
// and: requires +gradient_element<T>|does not satisfy .gradient_element.
// and: m.load\(i\). (is invalid|would be invalid)

#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/update_rule.hpp"

#include <cstddef>
#include <cstdint>

#if FAULT_ON
#define WRONG(right, wrong) wrong
#else
#define WRONG(right, wrong) right
#endif

using namespace protrain;

struct rule {
#if !FAULT_ON
  using policy_tag = optim::update_rule_tag;
#endif
  using step_type = float;
  static constexpr std::size_t state_tensors = 0;
  float prepare(double lr, std::int64_t, bool) const { return static_cast<float>(lr); }
  static void element(float, float, float, float&, optim::element_state<rule>&) noexcept {}
  bool operator==(rule const&) const = default;
};

void calls(float* p, float const* gradient, WRONG(float, double) const* contribution) {
  optim::store(p, contribution, 1);
  optim::update_fp32<rule>(0.5F, 1, gradient, p, {}, 1);
  (void)core::narrow<WRONG(float, double)>(1.0F);
}
static_assert(optim::master_arrays<WRONG(optim::whole_master, float*)>);
