// SPDX-License-Identifier: Apache-2.0
// One half of a program whose halves are compiled for different processors. Both have a copy of
// every inline function, and the linker keeps the first that it sees.

#include "test/unit/optim/contract_digest.hpp"

#include <cstdint>

namespace protrain_test {

std::uint64_t PROTRAIN_TEST_PART() { return contract_digest(); }

}  // namespace protrain_test
