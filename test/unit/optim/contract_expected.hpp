// SPDX-License-Identifier: Apache-2.0
#pragma once
// What contract_digest() is, for files that must not hold a copy of what it calls.

#include <cstdint>

namespace protrain_test {

inline constexpr std::uint64_t expected_digest = 7980565663839893877U;

}  // namespace protrain_test
