// SPDX-License-Identifier: Apache-2.0
// Traces: shapes by block, and a fingerprint that sees the job and nothing else.

#include "protrain/trace/trace.hpp"

#include "test/support/contract.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <vector>

namespace trace_test {

namespace {

using namespace protrain;

trace::trace small() {
  trace::trace t;
  t.shapes = {{.name = "a", .output = 512_B}, {.name = "b", .input = 512_B, .saved = 256_B}};
  t.blocks = {{0}, {1}};
  t.parameters = {{.name = "w", .shape = {3, 5}, .uses = {{0}}},
                  {.name = "v", .shape = {15}, .uses = {{0}, {1}}}};
  t.batch = 256_B;
  return t;
}

TEST_CASE("a block's shape; a block outside is a contract error") {
  trace::trace const t = small();
  CHECK(t.shape({1}).name.view() == "b");
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)t.shape({2}), test::contract_broken);
}

TEST_CASE("the fingerprint sees every fact that a program depends on") {
  std::vector<std::function<void(trace::trace&)>> const changes{
      [](auto& t) { t.job.micro_batch = 2; },
      [](auto& t) { t.job.sequence = 8; },
      [](auto& t) { t.job.accumulate = 2; },
      [](auto& t) { t.job.world = 2; },
      [](auto& t) { t.job.seed = 2; },
      [](auto& t) { t.job.type = dtype::bf16; },
      [](auto& t) { t.job.state = model::state_format::split_master; },
      [](auto& t) { t.job.skip = true; },
      [](auto& t) { t.job.clip = 1; },
      [](auto& t) { t.job.dropout = 0.5F; },
      [](auto& t) { t.job.loss_scale = 2; },
      [](auto& t) { t.job.debug = true; },
      [](auto& t) { t.parameters[0].name = "x"; },
      [](auto& t) { t.parameters[0].shape = {5, 3}; },
      [](auto& t) { t.parameters[0].type = dtype::bf16; },
      [](auto& t) { t.parameters[0].trainable = false; },
      [](auto& t) { t.parameters[0].decay = false; },
      [](auto& t) { t.parameters[0].learning_rate_scale = 0.1F; },
      [](auto& t) { t.parameters[0].uses = {{1}}; },
      [](auto& t) { t.parameters.pop_back(); },
      [](auto& t) { std::swap(t.parameters[0], t.parameters[1]); },
      [](auto& t) { t.blocks.push_back({1}); },
      [](auto& t) { t.shapes[0].name = "c"; },
      [](auto& t) { t.shapes[0].pinned = trace::pin::swap; },
      [](auto& t) { t.shapes[0].output = 1_KiB; },
      [](auto& t) { t.shapes[1].input = 1_KiB; },
      [](auto& t) { t.shapes[1].saved = 512_B; },
      [](auto& t) { t.shapes[1].scratch_forward = 256_B; },
      [](auto& t) { t.shapes[1].scratch_backward = 256_B; },
      [](auto& t) { t.shapes[1].reads_input = false; },
      [](auto& t) { t.shapes[1].levels = {{}}; },
      [](auto& t) { t.shapes[1].levels = {{}, {}}; },
      [](auto& t) { t.shapes[1].levels = {{.name = "cheap"}}; },
      [](auto& t) { t.shapes[1].levels = {{.saved = 256_B}}; },
      [](auto& t) { t.shapes[1].levels = {{.rebuilt = 256_B}}; },
      [](auto& t) { t.shapes[1].levels = {{.scratch = 256_B}}; },
      [](auto& t) { t.shapes[1].levels = {{.reads_input = true}}; },
      [](auto& t) { t.batch = 512_B; },
  };
  std::set<std::uint64_t> seen{trace::fingerprint(small())};
  for (auto const& change : changes) {
    trace::trace t = small();
    change(t);
    seen.insert(trace::fingerprint(t));
  }
  CHECK(seen.size() == changes.size() + 1);
}

TEST_CASE("the fingerprint sees no time, no source and no unused shape") {
  trace::trace t = small();
  t.from = trace::source::measured;
  t.shapes[0].forward = 1_ms;
  t.shapes[0].backward = 2_ms;
  t.shapes[0].operators.push_back({.name = "attention", .forward = 1_ms});
  t.shapes.push_back({.name = "unused"});
  t.shapes.back().levels.push_back({.name = "unused"});
  t.outside = 1_GiB;
  CHECK(trace::fingerprint(t) == trace::fingerprint(small()));
}

TEST_CASE("fields next to each other don't run together") {
  trace::trace a = small();
  trace::trace b = small();
  a.parameters[0].shape = {2, 3};
  a.parameters[0].uses = {{4}};
  b.parameters[0].shape = {2};
  b.parameters[0].uses = {{3}, {4}};
  CHECK(trace::fingerprint(a) != trace::fingerprint(b));
  a = small();
  b = small();
  a.parameters[0].uses = {{0}, {1}};
  b.parameters[1].uses = {{1}};
  a.parameters[1].uses = {{1}};
  CHECK(trace::fingerprint(a) != trace::fingerprint(b));
}

TEST_CASE("random traces have different fingerprints") {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    seen.insert(trace::fingerprint(test::make_case(seed).facts));
  }
  CHECK(seen.size() == 2000);
}

}  // namespace

}  // namespace trace_test
