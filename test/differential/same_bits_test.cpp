// SPDX-License-Identifier: Apache-2.0
// The plain loop, the plan that moves nothing and every other plan: equal bits after every step,
// and memory as predicted, to the byte. PROTRAIN_TEST_PLANS says how many plans.

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/schedule/compile.hpp"
#include "test/differential/plans.hpp"
#include "test/support/differential.hpp"
#include "test/support/pairwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace same_bits_test {

namespace {

using namespace protrain;
using test::at;
using test::on;

constexpr std::uint64_t seed = 20240609;  // its first 24 rows have every pair
constexpr std::uint64_t steps = 10;

std::size_t plans() {
  char const* const count = std::getenv("PROTRAIN_TEST_PLANS");
  return count == nullptr ? 100 : std::strtoull(count, nullptr, 10);
}

/// A model, its job, and what the plain loop makes of them.
struct reference {
  test::subject subject;
  test::outcome plain;
};

/// Made once for each model, dtype, accumulation, clipping and dropout.
reference const& reference_of(test::choice_row const& row) {
  static std::map<test::choice_row, reference> all;
  test::choice_row const key(row.begin(), row.begin() + static_cast<std::size_t>(on::device));
  auto found = all.find(key);
  if (found == all.end()) {
    test::subject s = test::make_subject_of(row);
    test::outcome plain = test::train_plain(s, steps);
    found = all.emplace(key, reference{std::move(s), std::move(plain)}).first;
  }
  return found->second;
}

/// `check_writes` compares whole arenas: too much for GPT-2.
device::serial_options serial(test::choice_row const& row, std::uint64_t order_seed) {
  return {.order = static_cast<device::run_policy>(at(row, on::device)),
          .seed = order_seed,
          .check_writes = at(row, on::model) != static_cast<std::uint32_t>(test::model_kind::gpt2)};
}

test::engine_run run(test::choice_row const& row,
                     test::subject const& s,
                     chunk::layout const& l,
                     schedule::knobs const& k,
                     std::uint64_t order_seed) {
  auto const programs = schedule::compile_segments(s.facts, l, k, test::eviction_of(row));
  REQUIRE(programs.has_value());
  if (at(row, on::device) == static_cast<std::uint32_t>(test::device_kind::host)) {
    device::host_device d;
    return test::train_on(d, s, l, *programs, steps);
  }
  device::serial_device d(serial(row, order_seed));
  return test::train_on(d, s, l, *programs, steps);
}

void check(test::engine_run const& run, test::outcome const& plain) {
  CHECK(test::difference(run.bits, plain) == "");
  CHECK(run.memory == "");
  CHECK(run.unused == 0);
}

TEST_CASE(
    "placement changes the loss: every plan gives the bits of the plain loop in the memory "
    "predicted") {
  auto const space = test::plan_space();
  auto const rows = space.rows(plans(), seed);
  auto const missing = space.missing_pairs(rows);
  std::printf("%zu plans from seed %llu, %zu of %zu pairs\n",
              rows.size(),
              static_cast<unsigned long long>(seed),
              space.pairs().size() - missing.size(),
              space.pairs().size());
  CHECK(space.missing_values(rows).empty());
  if (rows.size() >= 24) {
    CHECK(missing.empty());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string const plan = space.text(rows[i]);
    CAPTURE(i);
    CAPTURE(plan);
    reference const& r = reference_of(rows[i]);
    chunk::layout const l = test::layout_of(rows[i], r.subject.facts);
    check(run(rows[i], r.subject, l, test::knobs_of(rows[i], r.subject.facts, l), i), r.plain);
  }
}

/// The rows of all jobs, the rest of each 0.
std::vector<test::choice_row> all_jobs() {
  auto const space = test::plan_space();
  std::vector<test::choice_row> jobs{test::choice_row(space.axes().size(), 0)};
  for (std::size_t a = 0; a < static_cast<std::size_t>(on::device); ++a) {
    std::vector<test::choice_row> more;
    for (test::choice_row row : jobs) {
      for (row[a] = 0; row[a] < space.axes()[a].values.size(); ++row[a]) {
        more.push_back(row);
      }
    }
    jobs = std::move(more);
  }
  return jobs;
}

TEST_CASE("the plan that moves nothing and the plan that moves everything equal the plain loop") {
  auto jobs = all_jobs();
  std::size_t const stride = plans() < 100 ? 5 : 1;
  for (std::size_t i = 0; i < jobs.size(); i += stride) {
    std::string const job = test::plan_space().text(jobs[i]);
    CAPTURE(job);
    reference const& r = reference_of(jobs[i]);
    jobs[i][static_cast<std::size_t>(on::capacity)] = static_cast<std::uint32_t>(i % 3);
    chunk::layout const l = test::layout_of(jobs[i], r.subject.facts);
    check(run(jobs[i], r.subject, l, test::keep_all(r.subject.facts, l), i), r.plain);
    jobs[i][static_cast<std::size_t>(on::device)] = 2;
    check(run(jobs[i], r.subject, l, test::move_all(r.subject.facts, l), i), r.plain);
  }
}

TEST_CASE("the jobs are what they are meant to be") {
  for (test::choice_row const& row : all_jobs()) {
    std::string const job = test::plan_space().text(row);
    CAPTURE(job);
    if (plans() < 100 && at(row, on::model) == static_cast<std::uint32_t>(test::model_kind::gpt2)) {
      continue;
    }
    reference const& r = reference_of(row);
    auto const clipped = [&] {
      std::size_t n = 0;
      for (std::size_t i = 0; i < r.plain.norms.size(); ++i) {
        n += r.plain.norms[i] != r.plain.clipped[i] ? 1U : 0U;
      }
      return n;
    }();
    CHECK((clipped > 0) == (at(row, on::clip) == 1));
    CHECK(std::ranges::adjacent_find(r.plain.losses) == r.plain.losses.end());
    test::choice_row without = row;
    without[static_cast<std::size_t>(on::dropout)] = 0;
    // Synthetic blocks draw from their key in every job.
    bool const draws =
        at(row, on::model) != static_cast<std::uint32_t>(test::model_kind::synthetic);
    CHECK((r.plain == reference_of(without).plain) == (row == without || !draws));
  }
}

/// Whether some block's own tensors of one kind lie in several chunks.
bool cuts_a_block(trace::trace const& t, chunk::layout const& l) {
  for (std::size_t i = 1; i < t.parameters.size(); ++i) {
    model::parameter const& p = t.parameters[i - 1];
    model::parameter const& q = t.parameters[i];
    if (p.uses.front() == q.uses.front() && p.trainable == q.trainable &&
        l.where[i - 1].owner != l.where[i].owner) {
      return true;
    }
  }
  return false;
}

TEST_CASE("the smallest chunks cut blocks, the largest hold several") {
  for (std::uint32_t model = 0; model < 3; ++model) {
    CAPTURE(model);
    test::choice_row row(test::plan_space().axes().size(), 0);
    row[static_cast<std::size_t>(on::model)] = model;
    trace::trace const facts = test::make_subject_of(row).facts;
    CHECK(cuts_a_block(facts, test::layout_of(row, facts)));
    row[static_cast<std::size_t>(on::capacity)] = 2;
    std::size_t blocks = 0;
    for (chunk::chunk const& c : test::layout_of(row, facts).chunks) {
      blocks = std::max(blocks, c.blocks.size());
    }
    CHECK(blocks > 2);
  }
}

}  // namespace

}  // namespace same_bits_test
