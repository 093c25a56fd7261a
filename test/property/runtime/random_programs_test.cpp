// SPDX-License-Identifier: Apache-2.0
// Ten thousand random programs, each proven by verify and run once in a hostile order on the
// device that checks every access: the two must agree that nothing is wrong.

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/schedule/compile.hpp"
#include "test/support/any_policy.hpp"
#include "test/support/differential.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/ranks.hpp"
#include "test/support/synthetic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace random_programs_test {

namespace {

using namespace protrain;

constexpr std::uint64_t first_seed = 70'000;

struct subject_case {
  test::subject subject;
  chunk::layout layout;
  schedule::program program;
};

subject_case make(std::uint64_t seed) {
  test::random_source dice(seed);
  trace::trace const facts = test::smaller(test::random_trace(dice));
  chunk::layout layout = chunk::make_layout(facts, dice.between(100, 900));
  schedule::knobs const knobs = test::random_knobs(dice, facts, layout);
  test::any_eviction const eviction{dice.between32(0, test::eviction_kinds - 1)};
  auto program = schedule::compile(facts, layout, knobs, eviction);
  REQUIRE(program.has_value());
  return {test::make_subject(test::synthetic_model(facts), facts.job, test::uniform_values(0.5F)),
          std::move(layout),
          *std::move(program)};
}

/// One step; what went wrong, if anything.
std::string run(subject_case const& c, device::serial_device& d, test::outcome& bits) {
  try {
    test::engine_run const run = test::train_on(d, c.subject, c.layout, c.program, 1);
    bits = run.bits;
    return run.memory + (run.unused == 0 ? "" : "memory that no block used");
  } catch (std::exception const& e) {
    return e.what();
  }
}

TEST_CASE("random programs run without a hazard in a hostile order") {
  std::uint64_t const cases = test::scaled(10'000);
  std::uint64_t instructions = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    subject_case const c = make(seed);
    instructions += c.program.instructions.size();
    device::serial_device d({.order = device::run_policy::adversarial, .seed = seed});
    test::outcome bits;
    std::string const wrong = run(c, d, bits);
    CAPTURE(seed);
    REQUIRE(wrong == "");
    REQUIRE(d.hazards().empty());
    REQUIRE(d.usage_of(space::device).live + d.usage_of(space::host).live == 0);
    if (seed % 20 == 0) {
      REQUIRE(test::difference(bits, test::train_plain(c.subject, 1)) == "");
    }
  }
  std::printf("%llu programs from seed %llu, %llu instructions\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(first_seed),
              static_cast<unsigned long long>(instructions));
  CHECK(instructions > 50 * cases);
}

TEST_CASE("no order changes a bit, and no task writes what it didn't declare") {
  for (std::uint64_t seed = 0; seed < test::scaled(200); ++seed) {
    subject_case const c = make(seed);
    test::outcome first;
    for (auto const order : {device::run_policy::in_order,
                             device::run_policy::random,
                             device::run_policy::adversarial,
                             device::run_policy::adversarial}) {
      device::serial_device d({.order = order, .seed = seed, .check_writes = true});
      test::outcome bits;
      std::string const wrong = run(c, d, bits);
      CAPTURE(seed);
      CAPTURE(name_of(order));
      REQUIRE(wrong == "");
      first = first == test::outcome{} ? bits : first;
      REQUIRE(test::difference(bits, first) == "");
    }
  }
}

/// Cases over several ranks and with updates that are left over, smaller too.
test::random_case make_ranked(std::uint64_t seed) {
  test::random_case c = test::make_ranked_case(seed);
  c.facts = test::smaller(std::move(c.facts));
  test::random_source dice(~seed);
  c.layout = chunk::make_layout(c.facts, dice.between(100, 900));
  schedule::knobs const timed = c.knobs;
  c.knobs = test::random_knobs(dice, c.facts, c.layout);
  if (timed.time == update::timing::before_next_use) {
    c.knobs.time = timed.time;
    c.knobs.defer = timed.defer;
  }
  c.knobs.unroll = timed.unroll;
  return c;
}

TEST_CASE("random programs of several ranks run without a hazard, with the plain loop's bits") {
  std::uint64_t const cases = test::scaled(600);
  std::uint64_t several = 0;
  std::uint64_t deferred = 0;
  std::uint64_t cut = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    test::random_case const c = make_ranked(seed);
    auto programs = schedule::compile_segments(c.facts, c.layout, c.knobs, c.eviction);
    REQUIRE(programs.has_value());
    several += c.facts.job.world > 1 ? 1U : 0U;
    auto const& flags = programs->front().deferred;
    deferred += std::ranges::find(flags, 1) != flags.end() ? 1U : 0U;
    cut += programs->front().part == schedule::segment::first ? 1U : 0U;
    test::subject const s =
        test::make_subject(test::synthetic_model(c.facts), c.facts.job, test::uniform_values(0.5F));
    // Without batch tensors nothing says how many micro-batches an evaluation has.
    auto const what =
        c.facts.batch.value == 0 ? test::between::flush : static_cast<test::between>(seed % 4);
    // A hazard is thrown: no rank's run ends.
    device::serial_options const options{
        .order = device::run_policy::adversarial, .seed = seed, .check_writes = seed % 4 == 0};
    auto const runs =
        test::train_ranks([&] { return std::make_unique<device::serial_device>(options); },
                          s,
                          {s.facts, c.layout, *std::move(programs)},
                          3,
                          what);
    test::outcome const want = test::train_plain_ranks(s, 3, what);
    for (test::engine_run const& run : runs) {
      REQUIRE(test::difference(run.bits, want) == "");
      REQUIRE(run.memory == "");
      REQUIRE(run.unused == 0);
    }
  }
  std::printf(
      "%llu jobs from seed %llu, %llu over several ranks, %llu with deferred updates, "
      "%llu with steps cut into several programs\n",
      static_cast<unsigned long long>(cases),
      static_cast<unsigned long long>(first_seed),
      static_cast<unsigned long long>(several),
      static_cast<unsigned long long>(deferred),
      static_cast<unsigned long long>(cut));
  CHECK(several > cases / 2);
  CHECK(cut > cases / 5);
  CHECK(deferred > cases / 5);
}

}  // namespace

}  // namespace random_programs_test
