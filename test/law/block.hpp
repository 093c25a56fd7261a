// SPDX-License-Identifier: Apache-2.0
#pragma once
// The block law as a suite: the conformance kit's report, as one check. A fixture F has `F::make()`,
// a block, and `F::job()`, whose shapes it is checked on.

#include "protrain/block/check.hpp"
#include "protrain/model/job.hpp"

#include <doctest/doctest.h>

#include <string>

namespace protrain::law {

/// `block` keeps every law on `job`'s shapes.
template <block_type Block>
void keeps_block_law(Block const& block,
                     model::job const& job,
                     block::check_options const& options = {}) {
  std::string const broken = check_block(block, job, options).text();
  CHECK(broken == "");
}

TEST_CASE_TEMPLATE_DEFINE("laws of a block", F, block_laws) {
  keeps_block_law(F::make(), F::job());
}

}  // namespace protrain::law
