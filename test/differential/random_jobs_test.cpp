// SPDX-License-Identifier: Apache-2.0
// Random jobs under random plans: frozen, tied, empty and oversize tensors, blocks without inputs
// or saves. Queues run in a hostile order, and the bits are the plain loop's.

#include "test/support/random_jobs.hpp"

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/schedule/compile.hpp"
#include "test/support/differential.hpp"
#include "test/support/synthetic.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>

namespace random_jobs_test {

namespace {

using namespace protrain;

constexpr std::uint64_t first_seed = 40'000;
constexpr std::uint64_t steps = 3;

test::subject subject_of(test::random_case const& c) {
  return test::make_subject(
      test::synthetic_model(c.facts), c.facts.job, test::uniform_values(0.5F));
}

void check(test::random_case const& c, schedule::knobs const& knobs) {
  test::subject const s = subject_of(c);
  auto const program = schedule::compile(s.facts, c.layout, knobs);
  REQUIRE(program.has_value());
  device::serial_device d({.order = device::run_policy::adversarial, .seed = c.seed});
  test::engine_run const run = test::train_on(d, s, c.layout, *program, steps);
  CHECK(test::difference(run.bits, test::train_plain(s, steps)) == "");
  CHECK(run.memory == "");
  CHECK(run.unused == 0);
}

TEST_CASE("random plans of random jobs give the bits of the plain loop") {
  std::uint64_t const cases = test::scaled(200);
  std::printf("%llu jobs from seed %llu\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(first_seed));
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    check(c, c.knobs);
  }
}

TEST_CASE("moving everything gives the bits of the plain loop") {
  for (std::uint64_t seed = 0; seed < test::scaled(60); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    schedule::knobs k = c.knobs;
    k.persistent.assign(c.layout.chunks.size(), 0);
    k.sites.assign(c.layout.chunks.size(), update::site::cpu);
    k.strategies = activation::interleaved{}.assign(activation::pins_of(c.facts),
                                                    {.swap = 99, .checkpoint = 99, .interval = 2});
    k.levels.clear();
    k.buffers = schedule::fewest_buffers(c.layout, k.persistent);
    check(c, k);
  }
}

}  // namespace

}  // namespace random_jobs_test
