// SPDX-License-Identifier: Apache-2.0
// How systems of this kind fail in the field, each as an input and the right answer.

#include "protrain/core/philox.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace pitfalls_test {

namespace {

using namespace protrain;
using test::constant_batch;

struct gradients_seen {
  runtime::step_result result{};
  std::vector<std::vector<float>> gradients{};
};

/// The gradient of every element after one step, by parameter.
gradients_seen gradients(test::subject const& s,
                         test::placement const& p,
                         std::vector<float> const& g) {
  device::serial_device d({.order = device::run_policy::adversarial, .seed = 5});
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, p), test::descent{});
  engine.initialise(s.load);
  gradients_seen out{.result = engine.step(constant_batch(g), {.learning_rate = 1}).get()};
  for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
    out.gradients.push_back(engine.read(make_id<parameter_id>(i)));
    for (float& each : out.gradients.back()) {
      each = -each;
    }
  }
  return out;
}

void check_everywhere(gradients_seen const& seen, float value) {
  for (auto const& tensor : seen.gradients) {
    for (float const g : tensor) {
      REQUIRE(g == value);
    }
  }
}

TEST_CASE("accumulation lost under offload: 1, 2, 4, 8 are 15") {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(test::job_of(type, 4));
    for (test::placement const& p : test::placements()) {
      gradients_seen const seen = gradients(s, p, {1, 2, 4, 8});
      check_everywhere(seen, 15);
      CHECK(seen.result.grad_norm == static_cast<float>(std::sqrt(225.0 * 1593)));
      CHECK(seen.result.loss == 3.75F);
    }
  }
}

TEST_CASE(
    "accumulation lost under offload: 1 and three times 2^-9 are 1 + 3 x 2^-9, also in bf16") {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(test::job_of(type, 4));
    for (test::placement const& p : test::placements()) {
      gradients_seen const seen = gradients(s, p, {1, 0x1p-9F, 0x1p-9F, 0x1p-9F});
      check_everywhere(seen, 1 + 3 * 0x1p-9F);
    }
  }
}

TEST_CASE("accumulation lost under offload: random gradients in every placement") {
  test::random_source dice(11);
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(test::job_of(type, 5));
    std::vector<float> g;
    float sum = 0;
    for (int m = 0; m < 5; ++m) {
      g.push_back(static_cast<float>(dice.between(1, 255)) * 0x1p-5F *
                  (dice.chance(50) ? 0x1p-12F : 1.0F));
      sum = m == 0 ? g.back() : sum + g.back();
    }
    for (test::placement const& p : test::placements()) {
      check_everywhere(gradients(s, p, g), sum);
    }
  }
}

TEST_CASE("norm reported wrongly: g = 3 everywhere, 10,000 elements, max norm 1") {
  test::subject const s = test::constant_model(test::job_of(dtype::f32, 1, 1.0F),
                                               {{"a", {9000}}, {"frozen", {500}, false}},
                                               {{"b", {999}}},
                                               {{"c", {1}}});
  for (test::placement const& p : test::placements()) {
    gradients_seen const seen = gradients(s, p, {3});
    CHECK(seen.result.grad_norm == 300);
    CHECK(seen.result.grad_norm_clipped == doctest::Approx(1).epsilon(1e-6));
    CHECK(seen.gradients[0][8999] == doctest::Approx(0.01).epsilon(1e-6));
    CHECK(seen.gradients[1][0] == 0);
  }
}

TEST_CASE("a norm below the limit scales by exactly 1") {
  test::subject const s = test::four_tensors(test::job_of(dtype::f32, 1, 1e6F));
  for (test::placement const& p : test::placements()) {
    gradients_seen const seen = gradients(s, p, {3});
    CHECK(seen.result.grad_norm == seen.result.grad_norm_clipped);
    check_everywhere(seen, 3);
  }
}

TEST_CASE("tied parameter with uneven shards: on one rank it counts once and moves alike") {
  for (std::uint64_t const accumulate : {1U, 2U}) {
    test::subject const s = test::constant_model(test::job_of(dtype::bf16, accumulate),
                                                 {{"w", {7, 4}}},
                                                 {{"u", {7, 4}, true, "w"}},
                                                 {{"v", {7, 4}, true, "w"}});
    REQUIRE(s.table.parameters.size() == 1);
    for (test::placement const& p : test::placements()) {
      gradients_seen const seen = gradients(s, p, std::vector<float>(accumulate, 1.0F));
      float const uses = 3 * static_cast<float>(accumulate);
      check_everywhere(seen, uses);
      CHECK(seen.result.grad_norm == static_cast<float>(std::sqrt(28.0) * uses));
    }
  }
}

TEST_CASE("zero-size parameters: they work, even if there is nothing else") {
  std::vector<std::vector<std::uint64_t>> const sizes = {
      {8, 0, 24}, {16, 4, 0}, {0, 0, 5}, {0, 0, 0}};
  for (auto const& n : sizes) {
    for (float const clip : {0.0F, 1.0F}) {
      std::uint64_t const sum = n[0] + n[1] + n[2];
      test::subject const s = test::constant_model(
          test::job_of(dtype::f32, 2, clip), {{"a", {n[0]}}}, {{"b", {n[1]}}}, {{"c", {n[2]}}});
      for (test::placement const& p : test::placements()) {
        gradients_seen const seen = gradients(s, p, {1, 1});
        CHECK(seen.result.grad_norm == static_cast<float>(std::sqrt(4 * static_cast<double>(sum))));
        CHECK(seen.gradients[2].size() == n[2]);
      }
    }
  }
}

TEST_CASE("frozen parameters get state: they get none, no gradient store, and don't change") {
  auto const make = [](float clip, bool frozen) {
    return test::constant_model(test::job_of(dtype::bf16, 1, clip),
                                {{"big", {64'000}, !frozen}, {"adapter", {1024}}},
                                {{"big2", {64'000}, !frozen}},
                                {{"adapter2", {512}}, {"norm", {128}, !frozen}},
                                test::uniform_values(0.5F));
  };
  test::subject const s = make(1.0F, true);
  for (test::placement const& p : test::placements()) {
    runtime::plan_parts const parts = test::parts_of(s, p);
    CHECK(test::bytes_of(parts.programs.front(), category::optimizer) == 10 * 1536);
    device::serial_device d;
    comm::self alone;
    runtime::engine engine(d, alone, s.table, parts);
    engine.initialise(s.load);
    std::vector<std::vector<float>> before;
    for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
      before.push_back(engine.read(make_id<parameter_id>(i)));
    }
    for (int step = 0; step < 10; ++step) {
      (void)engine.step(constant_batch({0.25F}), {.learning_rate = 1e-2}).get();
    }
    for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
      auto const after = engine.read(make_id<parameter_id>(i));
      bool const same = test::bits_of(after) == test::bits_of(before[i]);
      CHECK(same == !s.table.parameters[i].trainable);
    }
  }
}

TEST_CASE("frozen parameters get state: gradient stores are of trainable elements only") {
  test::placement const on_host{.persistent = {0}, .capacity = 2048};
  test::placement const on_host_early{
      .persistent = {0}, .time = update::timing::during_backward, .capacity = 2048};
  auto const host_gradients = [](float clip, bool frozen, test::placement const& p) {
    test::subject const s = test::constant_model(test::job_of(dtype::bf16, 1, clip),
                                                 {{"big", {2048}, !frozen}},
                                                 {{"adapter", {1024}}},
                                                 {{"adapter2", {512}}});
    return schedule::memory_of(test::plan(s, p).programs.front(), space::host)
        .maximum[static_cast<std::size_t>(category::gradients)];
  };
  CHECK(host_gradients(1, true, on_host) == 2 * 1536);
  CHECK(host_gradients(1, false, on_host) == 2 * 3584);
  // No store: two slots, in which the trained chunk's gradient arrives.
  CHECK(host_gradients(0, true, on_host_early) == 2 * 1536);
}

/// A block that insists on the values it was given: they may not change within a step.
class watchful_block {
 public:
  explicit watchful_block(bool first) : first_(first) {}

  void describe(block_builder& b) const {
    b.parameter(first_ ? "w" : "v", {300});
    if (first_) {
      b.output({4}, dtype::f32);
    } else {
      b.input({4}, dtype::f32);
    }
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view, tensor_view y) const {
    s.run([&] {
      expect_ones(s);
      if (first_) {
        std::ranges::fill(y.elements_as<float>(), 0.0F);
      }
    });
  }
  void backward(scope& s, tensor_view, tensor_view, tensor_view dx) const {
    s.run([&] {
      expect_ones(s);
      std::ranges::fill(s.gradient({0}).elements_as<float>(), -7.0F);
      expect_ones(s);
      if (!first_) {
        std::ranges::fill(dx.elements_as<float>(), 0.0F);
      }
    });
  }

 private:
  static void expect_ones(scope& s) {
    for (float const v : s.value({0}).elements_as<float const>()) {
      if (v != 1) {
        throw std::runtime_error("a value changed during the step");
      }
    }
  }
  bool first_;
};

TEST_CASE("gradient shares the parameter's slot and overwrites it: never, in any placement") {
  test::subject const s = test::make_subject(
      stack{watchful_block(true), watchful_block(false)},
      test::job_of(dtype::f32, 2),
      [](model::parameter const&, std::span<float> values) { std::ranges::fill(values, 1.0F); });
  for (test::placement const& p : test::placements()) {
    device::serial_device d({.order = device::run_policy::adversarial, .check_writes = true});
    comm::self alone;
    runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
    engine.initialise(s.load);
    CHECK(engine.step(runtime::batch().targets(1), {}).get().grad_norm ==
          static_cast<float>(std::sqrt(600.0) * 14));
    CHECK(test::contains(
        test::message_of([&] { (void)engine.step(runtime::batch().targets(1), {}).get(); }),
        "a value changed"));
  }
}

model::job dropout_job(dtype type, float dropout, std::uint64_t accumulate) {
  model::job job = test::job_of(type, accumulate, 0.05F);
  job.micro_batch = 2;
  job.sequence = 3;
  job.dropout = dropout;
  return job;
}

test::subject deep_mlp(model::job const& job) {
  test::mlp_config const config{.layers = 4};
  auto const load = test::uniform_values(0.4F);
  return job.type == dtype::f32 ? test::make_subject(test::make_mlp<float>(config), job, load)
                                : test::make_subject(test::make_mlp<bfloat16>(config), job, load);
}

test::outcome outcome_on(device::serial_device& d,
                         test::subject const& s,
                         runtime::plan_parts parts,
                         std::uint64_t steps) {
  test::engine_run const run = test::train_on(d, s, parts.layout, parts.programs.front(), steps);
  CHECK(run.memory == "");
  return run.bits;
}

/// y = x times a dropout mask that is saved: what a recompute draws is what backward reads.
template <class T>
class mask_block {
 public:
  void describe(block_builder& b) {
    rows_ = b.job().micro_batch * b.job().sequence;
    b.input({rows_, 10});
    b.output({rows_, 10});
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view x, tensor_view y) const {
    tensor_view const mask = s.save("mask", dtype::f32, {rows_ * 10});
    random_stream const draws = make_stream(s.rng());
    s.run([&] {
      for (std::uint64_t k = 0; k < rows_ * 10; ++k) {
        float const kept = draws.uniform(k) < 0.1F ? 0.0F : 1.0F;
        mask.as<float>()[k] = kept;
        test::detail::store(y.as<T>()[k], test::detail::load(x.as<T const>()[k]) * kept);
      }
    });
  }
  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    tensor_view const mask = s.saved("mask");
    s.run([&] {
      for (std::uint64_t k = 0; k < rows_ * 10; ++k) {
        float const kept = mask.as<float const>()[k];
        test::detail::store(dx.as<T>()[k], test::detail::load(dy.as<T const>()[k]) * kept);
      }
    });
  }

 private:
  std::uint64_t rows_ = 0;
};

template <class T>
test::subject masked(model::job const& job) {
  test::mlp_config const config{};
  return test::make_subject(stack{test::mlp_input<T>(config),
                                  repeat(3, mask_block<T>{}, "mask"),
                                  repeat(2, test::mlp_layer<T>(config)),
                                  test::mlp_head<T>(config)},
                            job,
                            test::uniform_values(0.4F));
}

TEST_CASE(
    "recompute draws another dropout mask: the same in kept, checkpointed and swapped blocks") {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    model::job const job = dropout_job(type, 0.1F, 2);
    test::subject const s = type == dtype::f32 ? masked<float>(job) : masked<bfloat16>(job);
    test::outcome const plain = test::train_plain(s, 4);
    for (activation::counts const& counts : {activation::counts{},
                                             {.checkpoint = 9},
                                             {.swap = 9},
                                             {.swap = 9, .checkpoint = 9, .interval = 2}}) {
      device::serial_device d;
      auto const bits =
          outcome_on(d, s, test::parts_of(s, {.persistent = {1}, .counts = counts}), 4);
      CHECK(test::difference(bits, plain) == "");
    }
  }
}

TEST_CASE("reload races its own offload; released too early: right, whichever queue is late") {
  test::subject const s = deep_mlp(dropout_job(dtype::f32, 0.1F, 2));
  test::outcome const plain = test::train_plain(s, 3);
  for (std::uint32_t const swap : {0U, 2U, 9U}) {
    for (std::uint32_t const slots : {1U, 2U}) {
      // One slot of each kind more than the fewest there can be, or none.
      auto const parts = test::parts_of(s,
                                        {.persistent = {0},
                                         .counts = {.swap = swap},
                                         .capacity = 256,
                                         .swap_ahead = slots - 1,
                                         .more_slots = slots - 1});
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        device::serial_device d({.order = device::run_policy::adversarial, .seed = seed});
        CHECK(test::difference(outcome_on(d, s, parts, 3), plain) == "");
      }
    }
  }
}

/// Counts what must not happen in every step, or at all.
class counting_device {
 public:
  explicit counting_device(device::serial_device& d) : d_(d) {}
  std::uint64_t reserves = 0;
  std::uint64_t empty = 0;  ///< copies and fills of no bytes

  void reserve(space s, std::uint64_t n) {
    ++reserves;
    d_.reserve(s, n);
  }
  std::byte* base(space s) const { return d_.base(s); }
  void submit(queue_id q, std::span<device::touched const> t, device::task w) {
    d_.submit(q, t, w);
  }
  device::event record(queue_id q) { return d_.record(q); }
  void wait(queue_id q, device::event e) { d_.wait(q, e); }
  void reset_events() { d_.reset_events(); }
  void copy(device::queue_ref q, void* to, void const* from, std::uint64_t n) {
    empty += n == 0 ? 1U : 0U;
    d_.copy(q, to, from, n);
  }
  void zero(device::queue_ref q, void* to, std::uint64_t n) {
    empty += n == 0 ? 1U : 0U;
    d_.zero(q, to, n);
  }
  void lease(space s, std::uint64_t at, std::uint64_t n, category k) { d_.lease(s, at, n, k); }
  void release(space s, std::uint64_t at, std::uint64_t n, category k) { d_.release(s, at, n, k); }
  void settle() { d_.settle(); }
  device::usage usage_of(space s) const { return d_.usage_of(s); }
  void reset_usage() { d_.reset_usage(); }
  void synchronize() { d_.synchronize(); }
  double seconds() const { return d_.seconds(); }

 private:
  device::serial_device& d_;
};

TEST_CASE("pinned buffers allocated every step: reserved once, and every step issues the same") {
  test::subject const s = deep_mlp(dropout_job(dtype::f32, 0.1F, 2));
  device::serial_device inner;
  counting_device d(inner);
  comm::self alone;
  runtime::engine engine(
      d, alone, s.table, test::parts_of(s, {.persistent = {0}, .counts = {.swap = 9}}));
  engine.initialise(s.load);
  std::uint64_t const reserved = d.reserves;
  CHECK(reserved == 2);
  std::byte* const at = d.base(space::host);
  auto const calls_of_step = [&](std::uint64_t step) {
    std::uint64_t const before = inner.calls();
    (void)engine.step(test::step_data(s, step).get(), {}).get();
    return inner.calls() - before;
  };
  std::uint64_t const calls = calls_of_step(0);
  for (std::uint64_t step = 1; step < 50; ++step) {
    REQUIRE(calls_of_step(step) == calls);
  }
  CHECK(d.reserves == reserved);
  CHECK(d.base(space::host) == at);
}

TEST_CASE("zero-size parameters: nothing of no elements is launched") {
  for (auto const& n : std::vector<std::vector<std::uint64_t>>{
           {8, 0, 24}, {16, 4, 0}, {0, 0, 5}, {0, 700, 0}, {0, 0, 0}}) {
    test::subject const s = test::constant_model(
        test::job_of(dtype::bf16, 2, 1.0F), {{"a", {n[0]}}}, {{"b", {n[1]}}}, {{"c", {n[2]}}});
    for (test::placement const& p : test::placements()) {
      auto const parts = test::parts_of(s, p);
      for (schedule::program const& program : parts.programs) {
        for (schedule::instruction const& i : program.instructions) {
          bool const works = i.op == schedule::opcode::update ||
                             i.op == schedule::opcode::accumulate ||
                             i.op == schedule::opcode::norm_partial;
          CHECK_FALSE((works && i.amount == 0));
        }
      }
      device::serial_device inner;
      counting_device d(inner);
      comm::self alone;
      runtime::engine engine(d, alone, s.table, parts);
      engine.initialise(s.load);
      (void)engine.step(constant_batch({1, 1}), {}).get();
      (void)engine.step(constant_batch({1, 1}), {}).get();
      CHECK(d.empty == 0);
    }
  }
}

}  // namespace

}  // namespace pitfalls_test
