// SPDX-License-Identifier: Apache-2.0
// Placement: the laws over shipped and foreign policies.

#include "protrain/chunk/placement.hpp"

#include "test/law/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace placement_test {

namespace {

using namespace protrain;

/// The least that is a policy: the last chunks.
struct archetype {
  using policy_tag = chunk::placement_tag;
  std::vector<std::uint8_t> persistent(chunk::layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    std::fill_n(out.rbegin(), std::min<std::size_t>(n, out.size()), std::uint8_t{1});
    return out;
  }
  bool operator==(archetype const&) const = default;
};

/// A policy with a value: starts somewhere and wraps around.
struct from_chunk {
  using policy_tag = chunk::placement_tag;
  std::size_t first = 3;
  std::vector<std::uint8_t> persistent(chunk::layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t i = 0; i < std::min<std::size_t>(n, out.size()); ++i) {
      out[(first + i) % out.size()] = 1;
    }
    return out;
  }
  bool operator==(from_chunk const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::placement_laws, chunk::persist_first, archetype, from_chunk);

TEST_CASE("persist_first keeps the chunks that run first") {
  chunk::layout l;
  l.chunks.resize(4);
  CHECK(chunk::persist_first{}.persistent(l, 2) == std::vector<std::uint8_t>{1, 1, 0, 0});
}

}  // namespace

}  // namespace placement_test
