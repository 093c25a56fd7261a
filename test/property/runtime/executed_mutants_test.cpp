// SPDX-License-Identifier: Apache-2.0
// Programs that lack one dependency, executed although verify may refuse them: the device that
// checks every access finds a hazard exactly where verify finds a race.

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/differential.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/synthetic.hpp"
#include "test/support/unverified.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>

namespace executed_mutants_test {

namespace {

using namespace protrain;

struct executed {
  bool hazard = false;
  test::outcome bits{};
};

/// One step of `mutant`, whatever happens.
executed run(test::subject const& s,
             chunk::layout const& l,
             schedule::program const& sound,
             schedule::program const& mutant,
             device::run_policy order,
             std::uint64_t seed) {
  device::serial_device d(
      {.order = order, .seed = seed, .on_hazard = device::hazard_action::record});
  comm::self alone;
  runtime::engine engine(d, alone, s.table, runtime::plan_parts{s.facts, l, {sound}});
  test::exchange_dependencies(engine, mutant);
  executed out;
  out.bits = test::train(engine, s, 1);
  out.hazard = !d.hazards().empty();
  return out;
}

/// What became of the mutants.
struct tally {
  std::uint64_t needed = 0;     ///< verify refuses, the device finds a hazard
  std::uint64_t redundant = 0;  ///< verify accepts, the device finds none
  std::uint64_t differ = 0;     ///< of the needed: other bits under some order
};

void run_mutant(std::uint64_t seed, tally& sum) {
  test::random_case const c = test::make_case(seed);
  test::subject const s =
      test::make_subject(test::synthetic_model(c.facts), c.facts.job, test::uniform_values(0.5F));
  auto const sound = schedule::compile(s.facts, c.layout, c.knobs);
  REQUIRE(sound.has_value());
  if (sound->dependencies.empty()) {
    return;
  }
  test::random_source dice(seed + 1);
  auto const last = static_cast<std::uint32_t>(sound->dependencies.size() - 1);
  auto const mutant = test::without_dependency(*sound, dice.between32(0, last));
  schedule::verdict const verdict = schedule::verify(mutant, s.facts, c.layout);
  bool const needed = !verdict.ok;
  REQUIRE((!needed || verdict.reason == schedule::rejection::race));
  test::outcome const good = test::train_plain(s, 1);
  bool differs = false;
  for (auto const order : {device::run_policy::in_order, device::run_policy::adversarial}) {
    for (std::uint64_t k = 0; k < (order == device::run_policy::in_order ? 1U : 4U); ++k) {
      executed const e = run(s, c.layout, *sound, mutant, order, k);
      REQUIRE(e.hazard == needed);
      differs = differs || e.bits != good;
    }
  }
  REQUIRE((needed || !differs));
  sum.needed += needed ? 1U : 0U;
  sum.redundant += needed ? 0U : 1U;
  sum.differ += differs ? 1U : 0U;
}

TEST_CASE("a missing dependency is a race to verify and a hazard to the device, or to neither") {
  constexpr std::uint64_t first_seed = 90'000;
  std::uint64_t const cases = test::scaled(200);
  tally sum;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    run_mutant(seed, sum);
  }
  std::printf("%llu mutants from seed %llu: %llu needed, %llu redundant, %llu with other bits\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(first_seed),
              static_cast<unsigned long long>(sum.needed),
              static_cast<unsigned long long>(sum.redundant),
              static_cast<unsigned long long>(sum.differ));
  CHECK(sum.needed >= cases / 2);
  CHECK(sum.differ > 0);
}

TEST_CASE("a program that waits for nothing is a hazard in every order") {
  test::random_case const c = test::make_case(7);
  test::subject const s =
      test::make_subject(test::synthetic_model(c.facts), c.facts.job, test::uniform_values(0.5F));
  auto const sound = schedule::compile(s.facts, c.layout, c.knobs);
  REQUIRE(sound.has_value());
  schedule::program mutant = *sound;
  mutant.dependencies.clear();
  for (schedule::instruction& i : mutant.instructions) {
    i.first_dependency = 0;
    i.dependency_count = 0;
  }
  CHECK(run(s, c.layout, *sound, *sound, device::run_policy::random, 1).hazard == false);
  CHECK(run(s, c.layout, *sound, mutant, device::run_policy::in_order, 1).hazard);
  CHECK(run(s, c.layout, *sound, mutant, device::run_policy::adversarial, 1).hazard);
}

}  // namespace

}  // namespace executed_mutants_test
