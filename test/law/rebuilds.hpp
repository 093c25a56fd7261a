// SPDX-License-Identifier: Apache-2.0
#pragma once
// The law of block::rebuilds: the conformance kit's, of a block that does declare save levels. A
// fixture F has `F::make()`, the block, and `F::job()`.

#include "protrain/block/check.hpp"
#include "protrain/model/job.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

namespace protrain::law {
namespace detail {

/// A block and how often it was asked to rebuild.
template <block::rebuilds Block>
struct counted {
  Block inner;
  std::uint64_t* rebuilds;

  void describe(block_builder& b) { inner.describe(b); }
  void forward(scope& s, tensor_view x, tensor_view y) const { inner.forward(s, x, y); }
  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    inner.backward(s, x, dy, dx);
  }
  void rebuild(scope& s, tensor_view x) const {
    ++*rebuilds;
    inner.rebuild(s, x);
  }
};

}  // namespace detail

/// The laws that `block` breaks; empty if it keeps them all.
template <block::rebuilds Block>
std::string broken_rebuild_law(Block block, model::job const& job) {
  std::uint64_t rebuilds = 0;
  auto const report = check_block(detail::counted<Block>{std::move(block), &rebuilds}, job);
  return rebuilds == 0 ? "a save level, which is rebuilt" : report.text();
}

TEST_CASE_TEMPLATE_DEFINE("laws of a block that rebuilds", F, rebuild_laws) {
  CHECK(broken_rebuild_law(F::make(), F::job()) == "");
}

}  // namespace protrain::law
