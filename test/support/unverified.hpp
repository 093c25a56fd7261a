// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs programs that verify refuses: to see that they really go wrong.

#include "protrain/optim/adamw.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::test {

/// Exchanges the program of an engine that has accepted another one. Instructions, operands and
/// allocations must be those that it was built for; dependencies may be fewer.
template <class Engine>
void exchange_dependencies(Engine& engine, schedule::program const& with) {
  // The engine owns the program and is not const: only its accessor is.
  auto& program = const_cast<schedule::program&>(engine.program());
  program.dependencies = with.dependencies;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    program.instructions[i].first_dependency = with.instructions[i].first_dependency;
    program.instructions[i].dependency_count = with.instructions[i].dependency_count;
  }
}

/// AdamW that brings other programs along. An engine moves its rule in after it has proven its
/// programs and before it looks at them again: then they are exchanged, all of them.
class exchanging_adamw : public optim::adamw {
 public:
  exchanging_adamw() = default;
  /// Makes `with` of the programs in front of `into`, as many; where an engine's parts are moved
  /// into it, the programs stay where they are.
  exchanging_adamw(schedule::program* into, std::span<schedule::program const> with)
      : into_(into), with_(with) {}
  exchanging_adamw(exchanging_adamw const&) = default;
  exchanging_adamw(exchanging_adamw&& other) : exchanging_adamw(std::as_const(other)) {
    std::ranges::copy(with_, into_);
  }
  exchanging_adamw& operator=(exchanging_adamw const&) = default;
  exchanging_adamw& operator=(exchanging_adamw&&) = default;
  ~exchanging_adamw() = default;
  bool operator==(exchanging_adamw const& other) const {
    return into_ == other.into_ && with_.data() == other.with_.data();
  }

 private:
  schedule::program* into_ = nullptr;
  std::span<schedule::program const> with_{};
};
static_assert(optim::update_rule<exchanging_adamw>);

/// `p` without dependency number `at`, counted over the whole program.
inline schedule::program without_dependency(schedule::program p, std::uint32_t at) {
  p.dependencies.erase(p.dependencies.begin() + at);
  for (schedule::instruction& i : p.instructions) {
    std::uint32_t const end = i.first_dependency + i.dependency_count;
    i.dependency_count -= i.first_dependency <= at && at < end ? 1U : 0U;
    i.first_dependency -= i.first_dependency > at ? 1U : 0U;
  }
  return p;
}

}  // namespace protrain::test
