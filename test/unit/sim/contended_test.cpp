// SPDX-License-Identifier: Apache-2.0
// Programs whose work slows other work, counted on paper.

#include "protrain/sim/detail/contended.hpp"

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/contract.hpp"
#include "test/unit/sim/hand_built.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace contended_test {

namespace {

using namespace protrain;
using schedule::opcode;
using test::builder;
using test::critical;
using test::of;

/// Leaves a half of copies both ways, two thirds of copies and a quarter of the optimizer beside each
/// other, and four fifths of copies beside compute.
constexpr hw::machine slowed{.host_to_device = {600},
                             .device_to_host = {600},
                             .device_bandwidth = {10'000},
                             .host_bandwidth = {1'000},
                             .collective = {500},
                             .concurrent = {.both_ways = {{300}, {300}},
                                            .beside_compute = {{480}, {480}},
                                            .beside_update = {{400}, {400}},
                                            .update_beside_copies = {250}}};

sim::pace pace_of(hw::machine const& m = slowed, std::uint64_t world = 1) {
  return {m, link::shared{}, world};
}

void check_interval(sim::timeline const& t,
                    std::uint32_t i,
                    std::uint64_t start,
                    std::uint64_t end) {
  CAPTURE(i);
  CHECK(t.at[i].start.value == start);
  CHECK(t.at[i].end.value == end);
}

}  // namespace

TEST_CASE("copies both ways share the duplex limit while both run") {
  builder b;
  b.add(opcode::upload, queue_id::h2d, 100);
  b.add(opcode::offload, queue_id::d2h, 30);
  sim::timeline const t = b.run(pace_of());
  // 30 of work take 60 at half the rate; then 70 are left of the upload, at the whole.
  check_interval(t, 1, 0, 60);
  check_interval(t, 0, 0, 130);
  CHECK(of(t.busy, queue_id::h2d) == 130);
  CHECK(of(t.busy, queue_id::d2h) == 60);
  CHECK(of(t.exposed, queue_id::d2h) == 60);
  CHECK(b.run().finish.value == 100);
}

TEST_CASE("the CPU optimizer and copies slow each other") {
  builder b;
  b.add(opcode::upload, queue_id::h2d, 40);
  b.add(opcode::update, queue_id::cpu, 100);
  sim::timeline const one_way = b.run(pace_of());
  check_interval(one_way, 0, 0, 60);
  // Copies one way cost half of what is lost beside both: 60 x 5/8 = 37.5, and 62.5 alone.
  check_interval(one_way, 1, 0, 123);

  b.add(opcode::offload, queue_id::d2h, 40);
  sim::timeline const both = b.run(pace_of());
  // All three until 80, at a half, a half and a quarter: 20 of the update, and 80 alone.
  check_interval(both, 0, 0, 80);
  check_interval(both, 2, 0, 80);
  check_interval(both, 1, 0, 160);
}

TEST_CASE("a gather and a reduction share the links between devices") {
  builder b;
  b.add(opcode::gather, queue_id::gather, 40);
  b.add(opcode::reduce, queue_id::reduce, 100);
  sim::timeline const t = b.run(pace_of(slowed, 2));
  check_interval(t, 0, 0, 80);
  check_interval(t, 1, 0, 140);
}

TEST_CASE("an exchange of the CPU queue is a collective, and no work of the host's memory") {
  builder b;
  b.add(opcode::gather, queue_id::gather, 40);
  b.add(opcode::norm_exchange, queue_id::cpu, 40);
  b.add(opcode::upload, queue_id::h2d, 50);
  sim::timeline const t = b.run(pace_of(slowed, 2));
  check_interval(t, 0, 0, 80);
  check_interval(t, 1, 0, 80);
  check_interval(t, 2, 0, 50);
}

TEST_CASE("passes disturb copies and are not disturbed") {
  builder b;
  b.add(opcode::forward, queue_id::compute, 50);
  b.add(opcode::upload, queue_id::h2d, 60);
  sim::timeline const t = b.run(pace_of());
  check_interval(t, 0, 0, 50);
  check_interval(t, 1, 0, 70);  // 50 x 4/5 = 40, and 20 alone
  CHECK(of(t.exposed, queue_id::h2d) == 20);

  builder update;  // the device's memory is not the host's link
  update.add(opcode::update, queue_id::compute, 50);
  update.add(opcode::upload, queue_id::h2d, 60);
  sim::timeline const alone = update.run(pace_of());
  check_interval(alone, 0, 0, 50);
  check_interval(alone, 1, 0, 60);
}

TEST_CASE("ends are rounded up once, however often the mix changes") {
  hw::machine m = slowed;
  m.concurrent.beside_compute = {{200}, {200}};  // a third
  builder b;
  b.add(opcode::upload, queue_id::h2d, 20);
  for (int i = 0; i < 50; ++i) {
    b.add(opcode::zero, queue_id::compute, 0);
    b.add(opcode::forward, queue_id::compute, 1);
  }
  CHECK(b.run(pace_of(m)).at[0].end.value == 54);  // 50 thirds are 16 2/3, the rest is alone
}

TEST_CASE("a copy that is disturbed now and then keeps what it has done") {
  builder b;
  b.add(opcode::upload, queue_id::h2d, 100);
  std::uint32_t const first = b.add(opcode::offload, queue_id::d2h, 15);
  std::uint32_t const pause = b.add(opcode::gather, queue_id::gather, 20, {first});
  b.add(opcode::offload, queue_id::d2h, 15, {pause});
  sim::timeline const t = b.run(pace_of());
  check_interval(t, 1, 0, 30);
  check_interval(t, 2, 30, 50);
  check_interval(t, 3, 50, 80);
  check_interval(t, 0, 0, 130);  // 15, 20, 15 and 50 of its work
}

TEST_CASE("waiting and slowed work are the critical chain, which sums to the phases") {
  builder b;
  std::uint32_t const up = b.add(opcode::upload, queue_id::h2d, 20);
  b.add(opcode::forward, queue_id::compute, 10, {up});
  std::uint32_t const back = b.add(opcode::backward, queue_id::compute, 30);
  std::uint32_t const down = b.add(opcode::offload, queue_id::d2h, 8, {up});
  b.add(opcode::swap_in, queue_id::h2d, 8, {up});
  b.add(opcode::update, queue_id::cpu, 10, {back, down});
  sim::timeline const t = b.run(pace_of());
  check_interval(t, 1, 20, 30);
  check_interval(t, 2, 30, 60);
  check_interval(t, 3, 20, 36);
  check_interval(t, 4, 20, 36);
  check_interval(t, 5, 60, 70);
  CHECK(critical(t, sim::phase::forward, queue_id::h2d) == 20);
  CHECK(critical(t, sim::phase::forward, queue_id::compute) == 10);
  CHECK(critical(t, sim::phase::backward, queue_id::compute) == 30);
  CHECK(critical(t, sim::phase::update, queue_id::cpu) == 10);
  CHECK(t.phases[2].value == 10);
  CHECK(of(t.exposed, queue_id::d2h) == 0);
}

TEST_CASE("a pace without figures, or of a policy that knows no contention, is one pass") {
  hw::machine plain = slowed;
  plain.concurrent = {.all_ranks = {{60}, {60}}};
  CHECK(!pace_of(plain, 4).contended());
  CHECK(!sim::pace(slowed, link::fixed{}, 1).contended());
  CHECK(!sim::pace(slowed, link::derated{}, 1).contended());
  CHECK(pace_of().contended());
  builder b;
  b.add(opcode::upload, queue_id::h2d, 100);
  b.add(opcode::offload, queue_id::d2h, 30);
  CHECK(b.run(sim::pace(slowed, link::fixed{}, 1)) == b.run());
  CHECK(b.run(pace_of(plain)) == b.run());
}

TEST_CASE("a rank that shares its host has at most its rates alone, counted once") {
  hw::machine m = slowed;
  m.devices = 2;
  m.host_threads = 2;
  m.concurrent.all_ranks = {{200}, {450}};
  sim::pace const p = pace_of(m, 2);
  CHECK(p.rates() == cost::rates_of(m, link::fixed{}, 2));
  builder b;
  b.add(opcode::upload, queue_id::h2d, 90);
  b.add(opcode::offload, queue_id::d2h, 20);
  sim::timeline const t = b.run(p);
  // Up: 200 of 200, below the duplex limit already. Down: 300 of 450.
  check_interval(t, 0, 0, 90);
  check_interval(t, 1, 0, 30);
  // The optimizer's half of the host is slowed as the whole is.
  b.add(opcode::update, queue_id::cpu, 20);
  check_interval(b.run(p), 2, 0, 51);  // 30 at 125 of 500, what is left at 312 of 500
}

TEST_CASE("durations of a pace are those alone") {
  trace::trace facts{};
  facts.job.world = 1;
  schedule::program p{};
  p.instructions.push_back({.op = opcode::upload, .queue = queue_id::h2d, .amount = 6});
  CHECK(sim::durations_of(p, facts, pace_of()) == sim::durations_of(p, facts, slowed));
}

/// Lawless: its rate among other work has nothing to do with the work.
struct quicker {
  using policy_tag = link::bandwidth_tag;
  std::uint64_t by = 1;
  bandwidth rate(hw::machine const& m, link::channel c) const noexcept {
    return link::fixed{}.rate(m, c);
  }
  bandwidth rate_among(hw::machine const& m, link::channel c, link::load const&) const noexcept {
    return {by * rate(m, c).per_second / 2};
  }
  bool operator==(quicker const&) const = default;
};

TEST_CASE("a dependency on a later instruction is a contract error at any pace") {
  test::throwing_contracts const guard;
  builder b;
  b.add(opcode::forward, queue_id::compute, 1, {1});
  b.add(opcode::forward, queue_id::compute, 1);
  CHECK_THROWS_AS(b.run(pace_of()), test::contract_broken);
  b.program.instructions[0].dependency_count = 0;
  CHECK(b.run(pace_of()).finish.value == 2);
  b.durations.pop_back();
  CHECK_THROWS_AS(b.run(pace_of()), test::contract_broken);
  CHECK_THROWS_AS(sim::finish_of(b.program, b.durations, pace_of()), test::contract_broken);
}

TEST_CASE("a policy that breaks a law of contention stops at a contract that names it") {
  test::throwing_contracts const guard;
  constexpr auto above = "contention law: a positive rate, at most the one alone";
  constexpr auto slowed_alone = "contention law: alone, the policy's own rate";
  auto const make = [](std::uint64_t by) { return sim::pace(slowed, quicker{by}, 1); };
  CHECK_THROWS_WITH_AS(make(3), above, test::contract_broken);
  CHECK_THROWS_WITH_AS(make(0), above, test::contract_broken);
  CHECK_THROWS_WITH_AS(make(1), slowed_alone, test::contract_broken);
}

}  // namespace contended_test
