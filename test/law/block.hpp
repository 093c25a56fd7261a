// SPDX-License-Identifier: Apache-2.0
#pragma once
// The block law as a suite: the conformance kit's report, as one check.

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

}  // namespace protrain::law
