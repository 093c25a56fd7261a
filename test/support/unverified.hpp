// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs programs that verify refuses: to see that they really go wrong.

#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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
