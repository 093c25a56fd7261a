// SPDX-License-Identifier: Apache-2.0
// Ten thousand random programs, each proven by verify and run once in a hostile order on the
// device that checks every access: the two must agree that nothing is wrong.

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/schedule/compile.hpp"
#include "test/support/differential.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/synthetic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace {

using namespace protrain;

constexpr std::uint64_t first_seed = 70'000;

/// The same odd shapes with a tenth of the elements: what is tested is the schedule.
trace::trace smaller(trace::trace t) {
  for (model::parameter& p : t.parameters) {
    std::uint64_t& extent = p.shape.front();
    extent = extent > 10 ? extent / 10 : extent;
  }
  return t;
}

struct subject_case {
  test::subject subject;
  chunk::layout layout;
  schedule::program program;
};

subject_case make(std::uint64_t seed) {
  test::random_source dice(seed);
  trace::trace const facts = smaller(test::random_trace(dice));
  chunk::layout layout = chunk::make_layout(facts, dice.between(100, 900));
  schedule::knobs const knobs = test::random_knobs(dice, facts, layout);
  auto program = schedule::compile(facts, layout, knobs);
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

}  // namespace
