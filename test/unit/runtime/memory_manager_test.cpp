// SPDX-License-Identifier: Apache-2.0
// The whole composition in one type gives what its parts give, and says why where nothing fits.

#include "protrain/runtime/memory_manager.hpp"

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/optim/sgd.hpp"
#include "protrain/profile/measure.hpp"
#include "test/support/mlp.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace memory_manager_test {

namespace {

using namespace protrain;

constexpr test::mlp_config config{.layers = 4};
model::job const job{.micro_batch = 2, .sequence = 3, .clip = 0.05F};
hw::machine const machine = hw::host_demo();
plan::budget const small{.gpu = 10_KiB, .host = 1_MiB};

/// An eviction policy of one's own: whoever ran last.
struct ran_last {
  using policy_tag = chunk::eviction_tag;
  constexpr std::size_t victim(std::span<chunk::resident const> in) const noexcept {
    std::size_t best = 0;
    for (std::size_t i = 1; i < in.size(); ++i) {
      best = in[best].last_use < in[i].last_use ? i : best;
    }
    return best;
  }
  bool operator==(ran_last const&) const = default;
};

void load(model::parameter const& p, std::span<float> w) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<float>((i * 7 + p.shape.size()) % 11) / 16 - 0.3F;
  }
}

/// Features and targets of one step.
struct data {
  std::vector<float> features = std::vector<float>(36, 0.5F);
  std::vector<float> targets = std::vector<float>(36, -0.25F);
  runtime::batch batch{};

  explicit data(std::uint64_t step) {
    features[step % 36] = 1;
    batch.add("features", features.data(), features.size() * sizeof(float))
        .add("targets", targets.data(), targets.size() * sizeof(float))
        .targets(6);
  }
};

template <class Trainer>
std::vector<float> losses_of(Trainer& trainer) {
  trainer.initialise(load);
  std::vector<float> out;
  for (std::uint64_t step = 0; step < 4; ++step) {
    runtime::step_result const r = trainer.step(data(step).batch, {.learning_rate = 1e-2});
    out.push_back(r.loss);
  }
  out.push_back(trainer.evaluate(data(9).batch));
  return out;
}

std::vector<float> losses_of_parts(block::stack<test::mlp_input<float>,
                                                block::repeated<test::mlp_layer<float>>,
                                                test::mlp_head<float>> const& model) {
  device::serial_device device;
  comm::self alone;
  auto const plan = plan::search(profile::dry_run(model, job, machine), machine, small);
  runtime::engine engine{device, alone, model, *plan};
  return losses_of(engine);
}

}  // namespace

TEST_CASE("one line instead of trace, search, communicator and engine") {
  auto const model = test::make_mlp<float>(config);
  device::serial_device device;
  memory_manager manager{device, model, job, machine, small};
  static_assert(std::is_same_v<decltype(manager), memory_manager<device::serial_device>>);

  auto const plan = plan::search(profile::dry_run(model, job, machine), machine, small);
  REQUIRE(plan.has_value());
  CHECK(manager.plan() == *plan);
  CHECK(manager.trace() == plan->trace);
  CHECK(losses_of(manager) == losses_of_parts(model));
  CHECK(manager.measured(space::device).peak == manager.predicted(space::device).peak);
  CHECK(manager.engine().unused() == 0);
  CHECK(manager.measured(space::device).peak <= small.gpu.value);

  manager.flush();
  std::vector<std::vector<float>> seen;
  manager.visit([&](model::parameter const&, std::span<float const> values) {
    seen.emplace_back(values.begin(), values.end());
  });
  REQUIRE(seen.size() == manager.trace().parameters.size());
  CHECK(manager.read(make_id<parameter_id>(1)) == seen[1]);
}

TEST_CASE("a stack that is handed over lives as long as the manager") {
  auto model = test::make_mlp<float>(config);
  device::host_device device;
  memory_manager manager{device, std::move(model), job, machine, small};
  {
    auto const other = test::make_mlp<float>({.hidden = 3});
  }
  CHECK(losses_of(manager) == losses_of_parts(test::make_mlp<float>(config)));
}

TEST_CASE("what doesn't fit is said with the search's explanation") {
  auto const model = test::make_mlp<float>(config);
  device::serial_device device;
  plan::budget const tiny{.gpu = 1_KiB, .host = 1_MiB};
  auto const plan = plan::search(profile::dry_run(model, job, machine), machine, tiny);
  REQUIRE_FALSE(plan.has_value());
  std::string const why(plan.failure().explanation().view());
  try {
    memory_manager const manager{device, model, job, machine, tiny};
    FAIL("a kibibyte is enough");
  } catch (runtime::infeasible_error const& e) {
    CHECK(std::string(e.what()) == "no plan: " + why);
    CHECK(e.why() == plan.failure());
  }

  using manager = memory_manager<device::serial_device>;
  auto const answer = manager::try_make(device, model, job, machine, tiny);
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.failure() == plan.failure());
  auto const fits = manager::try_make(device, model, job, machine, small);
  REQUIRE(fits.has_value());
  CHECK((*fits)->plan().predicted.device.peak <= small.gpu.value);
}

TEST_CASE("cap not respected: 20 steps, evaluations and reading everything stay below any cap") {
  auto const model = test::make_mlp<float>(config);
  auto const facts = profile::dry_run(model, job, machine);
  auto const least = plan::search(facts, machine, {.gpu = 0_B, .host = 1_MiB});
  REQUIRE_FALSE(least.has_value());
  std::uint64_t const needed = least.failure().needs_device;
  std::vector<float> losses;
  for (std::uint64_t const cap : {needed, needed + 1, needed + 1000, 2 * needed, 100 * needed}) {
    CAPTURE(cap);
    // What the device is asked for beyond the caps, it refuses.
    device::host_device device({.limit = {cap, 1U << 20U}});
    memory_manager manager{device, model, job, machine, {.gpu = {cap}, .host = 1_MiB}};
    manager.initialise(load);
    std::vector<float> own;
    for (std::uint64_t step = 0; step < 20; ++step) {
      own.push_back(manager.step(data(step).batch, {.learning_rate = 1e-2}).get().loss);
      own.push_back(manager.evaluate(data(step + 1).batch));
      manager.visit([&](model::parameter const&, std::span<float const> values) {
        own.push_back(values.empty() ? 0.0F : values.front());
      });
      CHECK(device.usage_of(space::device).peak <= cap);
      CHECK(device.usage_of(space::host).peak <= 1U << 20U);
    }
    losses = losses.empty() ? own : losses;
    CHECK(own == losses);
  }
  device::host_device device({.limit = {needed - 1, 1U << 20U}});
  CHECK_THROWS_AS(
      (memory_manager{device, model, job, machine, {.gpu = {needed - 1}, .host = 1_MiB}}),
      runtime::infeasible_error);
  CHECK(device.base(space::device) == nullptr);
}

TEST_CASE("a trace that exists already is taken as it is") {
  auto const model = test::make_mlp<float>(config);
  device::serial_device device;
  trace::trace facts = profile::dry_run(model, job, machine);
  facts.from = trace::source::measured;
  for (trace::block_shape& shape : facts.shapes) {
    shape.forward = 7_us;
  }
  memory_manager manager{device, model, facts, machine, small};
  CHECK(manager.trace() == facts);
  CHECK(losses_of(manager) == losses_of_parts(model));
}

TEST_CASE("a measured trace plans and trains like a dry run's") {
  auto const model = test::make_mlp<float>(config);
  device::host_device device;
  trace::trace const facts = profile::measure(device, model, job, data(0).batch);
  CHECK(facts.from == trace::source::measured);
  CHECK(trace::fingerprint(facts) == trace::fingerprint(profile::dry_run(model, job)));
  comm::self alone;
  memory_manager manager{device, alone, model, facts, machine, small};
  CHECK(manager.trace() == facts);
  CHECK(losses_of(manager) == losses_of_parts(model));
  CHECK(manager.measured(space::device).peak == manager.predicted(space::device).peak);
}

TEST_CASE("policies and update rule are the caller's") {
  auto const model = test::make_mlp<float>(config);
  device::serial_device device;
  auto const rules = plan::policies<>{}.with(ran_last{}).with(update::after_backward{});
  memory_manager manager{device, model, job, machine, small, rules, optim::sgd{}};
  CHECK(manager.plan().at.time == update::timing::after_backward);
  auto const programs = manager.plan().segments(ran_last{});
  REQUIRE(programs.has_value());
  CHECK(manager.engine().program() == programs->front());
  CHECK(losses_of(manager) != losses_of_parts(model));  // another optimizer
}

TEST_CASE("as one rank of a communicator") {
  auto const model = test::make_mlp<float>(config);
  device::serial_device device;
  comm::self alone;
  memory_manager manager{device, alone, model, job, machine, small};
  CHECK(losses_of(manager) == losses_of_parts(model));

  model::job several = job;
  several.world = 2;
  CHECK_THROWS_AS((memory_manager{device, alone, model, several, machine, small}),
                  runtime::engine_error);
}

}  // namespace memory_manager_test
