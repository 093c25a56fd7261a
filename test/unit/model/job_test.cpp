// SPDX-License-Identifier: Apache-2.0
// The job: what makes updates wait, default formats, token counts.

#include "protrain/model/job.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

namespace job_test {

namespace {

using namespace protrain;
using model::state_format;

TEST_CASE("updates wait for the norm when clipping, skipping or in fp16") {
  CHECK_FALSE(needs_norm(model::job{}));
  CHECK_FALSE(needs_norm(model::job{.type = dtype::bf16}));
  CHECK(needs_norm(model::job{.clip = 0.5F}));
  CHECK(needs_norm(model::job{.skip = true}));
  CHECK(needs_norm(model::job{.type = dtype::f16}));
}

TEST_CASE("formats that fit element types, by name") {
  CHECK(model::default_state(dtype::f32) == state_format::fp32);
  CHECK(model::default_state(dtype::bf16) == state_format::split_master);
  CHECK(model::default_state(dtype::f16) == state_format::separate_master);
  CHECK(name_of(state_format::fp32) == "fp32");
  CHECK(name_of(state_format::split_master) == "split_master");
  CHECK(name_of(state_format::separate_master) == "separate_master");
}

TEST_CASE("tokens of a step, checked") {
  CHECK(model::tokens_per_step({.micro_batch = 4, .sequence = 1024, .accumulate = 2, .world = 3}) ==
        24'576);
  CHECK(model::tokens_per_step({.micro_batch = 1 << 20, .sequence = 1 << 20}) == 1ULL << 40U);
  test::throwing_contracts const guard;
  CHECK_THROWS_AS(
      (void)model::tokens_per_step({.micro_batch = 1ULL << 40U, .sequence = 1ULL << 40U}),
      test::contract_broken);
}

}  // namespace

}  // namespace job_test
