// SPDX-License-Identifier: Apache-2.0
// Parameter groups: a learning-rate scale beside decay, in the engine and in the plain loops.

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace parameter_groups_test {

namespace {

using namespace protrain;

/// Scales by position: the step's rate, a tenth of it, none.
test::subject grouped(model::job const& job) {
  auto const load = test::uniform_values(0.4F);
  test::subject s = job.type == dtype::f32
                        ? test::make_subject(test::make_mlp<float>({.layers = 4}), job, load)
                        : test::make_subject(test::make_mlp<bfloat16>({.layers = 4}), job, load);
  for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
    constexpr float scales[] = {1, 0.1F, 0.1F, 0, 1};
    s.table.parameters[i].learning_rate_scale = scales[i % 5];
  }
  s.facts = profile::dry_run(s.table, job);
  return s;
}

model::job job_of(dtype type, std::uint64_t world = 1) {
  model::job job = test::job_of(type, 2, 0.05F);
  job.micro_batch = 2;
  job.sequence = 3;
  job.world = world;
  return job;
}

std::vector<test::placement> placements() {
  auto all = test::placements();
  all.push_back({.persistent = {0},
                 .counts = {.checkpoint = 9},
                 .time = update::timing::before_next_use,
                 .defer = 2});
  return all;
}

/// A rule that says what it is asked: one state tensor, the sum of gradients, which the parameter
/// shows when its rate is 0.
struct witness {
  using policy_tag = optim::update_rule_tag;
  struct step_type {
    float rate = 0;
    bool operator==(step_type const&) const = default;
  };
  struct asked {
    double rate;
    bool decay;
    std::thread::id thread;
  };
  static constexpr std::size_t state_tensors = 1;
  static inline std::vector<asked> log{};

  step_type prepare(double learning_rate, std::int64_t, bool decay) const {
    log.push_back({learning_rate, decay, std::this_thread::get_id()});
    return {static_cast<float>(learning_rate)};
  }
  static void element(step_type const& step,
                      float s,
                      float gradient,
                      float& p,
                      optim::element_state<witness>& state) noexcept {
    state[0] += s * gradient;
    p = step.rate == 0 ? state[0] : p;
  }
  bool operator==(witness const&) const = default;
};
static_assert(optim::update_rule<witness>);

}  // namespace

TEST_CASE("groups of scale 0.1 and 0 have the plain loops' bits under every placement") {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = grouped(job_of(type));
    test::outcome const plain = test::train_plain(s, 4);
    CHECK(test::difference(test::train_plain_ranks(s, 4, test::between::nothing), plain) == "");
    for (test::placement const& p : placements()) {
      device::serial_device d;
      comm::self alone;
      runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
      CHECK(test::difference(test::train(engine, s, 4), plain) == "");
    }
  }
}

TEST_CASE("the scale is the group's: 1 is as before, 0 stops the parameter") {
  test::subject const s = grouped(job_of(dtype::f32));
  test::subject same = s;
  for (model::parameter& p : same.table.parameters) {
    p.learning_rate_scale = 1;
  }
  test::outcome const scaled = test::train_plain(s, 1);
  test::outcome const whole = test::train_plain(same, 1);
  test::outcome const before = test::train_plain(s, 0);
  for (std::size_t i = 0; i < scaled.parameters.size(); ++i) {
    float const scale = s.table.parameters[i].learning_rate_scale;
    CAPTURE(i);
    CHECK((scaled.parameters[i] == whole.parameters[i]) == (scale == 1));
    CHECK((scaled.parameters[i] == before.parameters[i]) == (scale == 0));
  }
}

TEST_CASE("three ranks") {
  test::subject const s = grouped(job_of(dtype::f32, 3));
  test::outcome const plain = test::train_plain_ranks(s, 3, test::between::nothing);
  for (test::placement const& p : placements()) {
    auto const runs = test::train_ranks([] { return std::make_unique<device::serial_device>(); },
                                        s,
                                        test::parts_of(s, p),
                                        3,
                                        test::between::nothing);
    for (test::engine_run const& run : runs) {
      CHECK(test::difference(run.bits, plain) == "");
    }
  }
}

TEST_CASE("the rule is asked once per distinct group and step, on the caller's thread") {
  test::subject const s = grouped(job_of(dtype::f32));
  std::set<std::pair<bool, float>> groups;
  for (model::parameter const& p : s.table.parameters) {
    groups.emplace(p.decay, p.learning_rate_scale);
  }
  REQUIRE(groups.size() > 3);
  device::host_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, {.persistent = {0}}), witness{});
  engine.initialise(s.load);
  for (std::uint64_t step = 0; step < 2; ++step) {
    witness::log.clear();
    test::step_data const data(s, step);
    (void)engine.step(data.get(), {.learning_rate = 0.5}).get();
    CHECK(witness::log.size() == groups.size());
    std::set<std::pair<bool, double>> seen;
    for (witness::asked const& a : witness::log) {
      CHECK(a.thread == std::this_thread::get_id());
      seen.emplace(a.decay, a.rate);
    }
    for (auto const& [decay, scale] : groups) {
      CHECK(seen.contains({decay, 0.5 * static_cast<double>(scale)}));
    }
  }
}

TEST_CASE("a rate of 0 stops the parameter, not its moments") {
  test::subject const s = grouped(job_of(dtype::f32));
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, {.persistent = {1}}), witness{});
  engine.initialise(s.load);
  std::vector<float> const moving = engine.read(make_id<parameter_id>(0));
  test::step_data const data(s, 0);
  (void)engine.step(data.get(), {.learning_rate = 0.5}).get();
  std::vector<float> const once = engine.read(make_id<parameter_id>(3));
  (void)engine.step(data.get(), {.learning_rate = 0.5}).get();
  CHECK(engine.read(make_id<parameter_id>(3)) != once);
  CHECK(engine.read(make_id<parameter_id>(0)) == moving);
}

TEST_CASE("a block says the scale of its parameters") {
  auto const lone = make_block(
      [](block_builder& b) {
        b.parameter("a", {4}, {.learning_rate_scale = 0.25F});
        b.parameter("b", {4});
      },
      [](scope&, tensor_view, tensor_view) {},
      [](scope&, tensor_view, tensor_view, tensor_view) {});
  stack const model{lone};
  auto const t = model.entries({});
  CHECK(t.parameters[0].learning_rate_scale == 0.25F);
  CHECK(t.parameters[1].learning_rate_scale == 1);
  CHECK(profile::dry_run(t, {}).parameters[0].learning_rate_scale == 0.25F);
}

}  // namespace parameter_groups_test
