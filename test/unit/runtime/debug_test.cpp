// SPDX-License-Identifier: Apache-2.0
// Jobs that debug: blocks that write too far or read what nobody wrote are named, and no bit
// changes for those that do neither.

#include "protrain/block/error.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace debug_test {

namespace {

using namespace protrain;
using test::contains;
using test::message_of;

model::job debug_job(dtype type, std::uint64_t accumulate, float clip, bool debug = true) {
  model::job job = test::job_of(type, accumulate, clip);
  job.micro_batch = 2;
  job.sequence = 3;
  job.debug = debug;
  return job;
}

// --- the same bits -------------------------------------------------------------------------------

test::subject mlp(dtype type, bool debug, std::uint64_t ranks = 1) {
  model::job job = debug_job(type, 2, 0.05F, debug);
  job.dropout = 0.1F;
  job.world = ranks;
  return type == dtype::bf16
             ? test::make_subject(
                   test::make_mlp<bfloat16>({.layers = 3}), job, test::uniform_values(0.4F))
             : test::make_subject(
                   test::make_mlp<float>({.layers = 3}), job, test::uniform_values(0.4F));
}

std::uint64_t peak(runtime::plan_parts const& parts) {
  return schedule::memory_of(parts.programs.front(), space::device).peak;
}

TEST_CASE("debugging changes no bit, and memory is still exact") {
  for (dtype const type : {dtype::bf16, dtype::f32}) {
    test::outcome const plain = test::train_plain(mlp(type, false), 3);
    test::subject const s = mlp(type, true);
    CHECK(test::difference(test::train_plain(s, 3), plain) == "");
    for (test::placement const& p : test::placements()) {
      runtime::plan_parts const parts = test::parts_of(s, p);
      CHECK(peak(parts) > peak(test::parts_of(mlp(type, false), p)));
      device::serial_device serial(
          {.order = device::run_policy::adversarial, .seed = 11, .check_writes = true});
      device::host_device host;
      auto const check = [&](auto& d) {
        auto const run = test::train_on(d, s, parts.layout, parts.programs, 3);
        CHECK(test::difference(run.bits, plain) == "");
        CHECK(run.memory == "");
        CHECK(run.unused == 0);
      };
      check(serial);
      check(host);
    }
  }
}

TEST_CASE("over three ranks too") {
  test::subject const s = mlp(dtype::bf16, true, 3);
  test::outcome const plain =
      test::train_plain_ranks(mlp(dtype::bf16, false, 3), 2, test::between::nothing);
  runtime::plan_parts const parts =
      test::parts_of(s, {.persistent = {0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1}});
  auto const runs = test::train_ranks(
      [] { return std::make_unique<device::host_device>(); }, s, parts, 2, test::between::nothing);
  for (test::engine_run const& run : runs) {
    CHECK(test::difference(run.bits, plain) == "");
    CHECK(run.memory == "");
  }
}

// --- blocks that do wrong ------------------------------------------------------------------------

enum class fault : std::uint8_t {
  none,
  scratch,
  outer_scratch,
  saved,
  saved_in_backward,
  y,
  rebuilt,
  dx,
  gradient,
  reads_scratch,
  leaves_y,
  divides,
};

/// y = x + bias, by way of scratch and a saved copy, which a save level drops; in layer 1 with a
/// fault.
class sloppy {
 public:
  static constexpr std::uint64_t width = 10;
  explicit sloppy(fault what) : what_(what) {}

  void describe(block_builder& b) {
    rows_ = b.job().micro_batch * b.job().sequence;
    bias_ = b.parameter("bias", {width}, {.decay = false});
    cheap_ = b.level("cheap");
    b.input({rows_, width});
    b.output({rows_, width});
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    tensor_view const outer = s.scratch(dtype::f32, {width});
    tensor_view const copy = s.save("copy", dtype::f32, {rows_, width}, block::dropped_at{cheap_});
    auto const op = s.op("add");
    tensor_view const sum = s.scratch(dtype::f32, {rows_, width});
    op.run([&] {
      for (std::uint64_t i = 0; i < rows_ * width; ++i) {
        copy.as<float>()[i] = x.as<float const>()[i];
        if (!guilty(s, fault::reads_scratch)) {
          sum.as<float>()[i] = x.as<float const>()[i];
        }
        if (!guilty(s, fault::leaves_y) || i != 7) {
          y.as<float>()[i] = sum.as<float const>()[i] + s.value(bias_).as<float const>()[i % width];
        }
      }
      if (guilty(s, fault::divides)) {
        y.as<float>()[5] = std::numeric_limits<float>::infinity();
      }
      overrun(s, fault::scratch, sum, 64);
      overrun(s, fault::outer_scratch, outer, 4);
      overrun(s, fault::saved, copy, 1);
      overrun(s, fault::y, y, 200);
    });
  }

  void rebuild(scope& s, tensor_view x) const {
    tensor_view const copy = s.rebuild("copy");
    s.op("again").run([&] {
      std::memcpy(copy.data, x.data, copy.bytes());
      overrun(s, fault::rebuilt, copy, 8);
    });
  }

  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    tensor_view const copy = s.saved("copy");
    tensor_view const db = s.gradient(bias_);
    s.run([&] {
      std::memcpy(dx.data, dy.data, dx.bytes());
      for (std::uint64_t i = 0; i < rows_ * width; ++i) {
        db.as<float>()[i % width] += dy.as<float const>()[i];
      }
      overrun(s, fault::saved_in_backward, copy, 3);
      overrun(s, fault::dx, dx, 16);
      overrun(s, fault::gradient, db, 256);
    });
  }

 private:
  bool guilty(scope const& s, fault what) const { return what == what_ && s.layer() == 1; }
  void overrun(scope const& s, fault what, tensor_view const& t, std::uint64_t bytes) const {
    if (guilty(s, what)) {
      std::memset(t.raw() + t.bytes(), 0x11, bytes);
    }
  }

  fault what_;
  std::uint64_t rows_ = 0;
  parameter_ref bias_{};
  block::level_ref cheap_{};
};

test::subject sloppy_model(fault what, bool skip = false) {
  model::job job = debug_job(dtype::f32, 1, 0);
  job.skip = skip;
  return test::make_subject(
      stack{test::mlp_input<float>({}), repeat(3, sloppy(what)), test::mlp_head<float>({})},
      job,
      test::uniform_values(0.4F));
}

/// What a step says, with every block kept, checkpointed or swapped.
std::vector<std::string> said_by_steps(test::subject const& s) {
  std::vector<std::string> out;
  for (activation::counts const& counts : {activation::counts{},
                                           activation::counts{.checkpoint = 9},
                                           activation::counts{.swap = 9, .interval = 2}}) {
    device::host_device d;
    comm::self alone;
    runtime::engine<device::host_device> engine(
        d, alone, s.table, test::parts_of(s, {.persistent = {0}, .counts = counts}));
    engine.initialise(s.load);
    test::step_data const data(s, 0);
    out.push_back(message_of([&] { (void)engine.step(data.get(), {}).get(); }));
    // Nothing was updated: the engine goes on, and the block does it again.
    CHECK(message_of([&] { (void)engine.step(data.get(), {}).get(); }) == out.back());
  }
  return out;
}

struct expected {
  fault what;
  std::string_view says;
};

TEST_CASE("a write that runs too far: block, operator, tensor and bytes") {
  for (expected const& e : std::array<expected, 8>{
           {{fault::none, ""},
            {fault::scratch,
             "block h.1: operator 'add' wrote 64 B past its scratch (block 2, forward)"},
            {fault::outer_scratch,
             "block h.1: operator 'add' wrote 4 B past its scratch (block 2, forward)"},
            {fault::saved,
             "block h.1: operator 'add' wrote 1 B past saved 'copy' (block 2, forward)"},
            {fault::saved_in_backward,
             "block h.1: wrote 3 B past saved 'copy' (block 2, backward)"},
            {fault::y, "block h.1: operator 'add' wrote 200 B past y (block 2, forward)"},
            {fault::dx, "block h.1: wrote 16 B past dx (block 2, backward)"},
            {fault::gradient,
             "block h.1: wrote 256 B past gradient 'bias' (block 2, backward)"}}}) {
    for (std::string const& said : said_by_steps(sloppy_model(e.what))) {
      CHECK(said == e.says);
    }
  }
}

TEST_CASE("what save levels drop is guarded in forward, rebuild and backward") {
  test::placement const dropping{.persistent = {0}, .levels = {0, 1, 1, 1, 0}};
  for (expected const& e : std::array<expected, 3>{
           {{fault::saved,
             "block h.1: operator 'add' wrote 1 B past saved 'copy' (block 2, forward)"},
            {fault::rebuilt,
             "block h.1: operator 'again' wrote 8 B past rebuilt 'copy' (block 2, rebuild)"},
            {fault::saved_in_backward,
             "block h.1: wrote 3 B past saved 'copy' (block 2, backward)"}}}) {
    test::subject const s = sloppy_model(e.what);
    device::host_device d;
    comm::self alone;
    runtime::engine<device::host_device> engine(d, alone, s.table, test::parts_of(s, dropping));
    engine.initialise(s.load);
    test::step_data const data(s, 0);
    CHECK(message_of([&] { (void)engine.step(data.get(), {}).get(); }) == e.says);
  }
  test::subject const s = sloppy_model(fault::none);
  runtime::plan_parts const parts = test::parts_of(s, dropping);
  device::serial_device d({.order = device::run_policy::random, .seed = 5, .check_writes = true});
  auto const run = test::train_on(d, s, parts.layout, parts.programs, 2);
  CHECK(test::difference(run.bits, test::train_plain(s, 2)) == "");
  CHECK(run.memory == "");
  CHECK(run.unused == 0);
}

TEST_CASE("the first block whose numbers aren't finite, and why") {
  for (expected const& e : std::array<expected, 2>{
           {{fault::reads_scratch,
             "block h.1: made the first number that is not finite: y, element 0; it may have read "
             "scratch, saved tensors or outputs that it had not written (block 2, forward)"},
            {fault::divides,
             "block h.1: made the first number that is not finite: y, element 5;"}}}) {
    for (std::string const& said : said_by_steps(sloppy_model(e.what))) {
      CHECK(said.find(e.says) == 0);
    }
  }
  for (std::string const& said : said_by_steps(sloppy_model(fault::leaves_y))) {
    CHECK(said.find("block h.2: made the first number that is not finite: y, element 7; element 7 "
                    "of x was never written by the block before") == 0);
  }
}

TEST_CASE("a parameter that isn't finite is the reason") {
  test::subject s = sloppy_model(fault::none);
  auto const load = s.load;
  s.load = [load](model::parameter const& p, std::span<float> values) {
    load(p, values);
    if (p.name.view() == "h.1.bias") {
      values[3] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  for (std::string const& said : said_by_steps(s)) {
    CHECK(said.find("block h.1: made the first number that is not finite: y, element 3; parameter "
                    "'bias' has one in element 3") == 0);
  }
}

TEST_CASE("a job that skips steps that aren't finite expects such gradients, but no such losses") {
  for (bool const skip : {false, true}) {
    test::subject s = sloppy_model(fault::none, skip);
    block::block_entry& entry = s.table.blocks[2];
    test::trap inner;
    test::set_trap(s, 2, true, inner);
    entry.backward =
        [](void const* object, scope& at, tensor_view x, tensor_view dy, tensor_view dx) {
          auto const& own = *static_cast<test::trap const*>(object);
          own.inner.backward(own.inner.object, at, x, dy, dx);
          dx.as<float>()[1] = std::numeric_limits<float>::infinity();
        };
    device::host_device d;
    comm::self alone;
    runtime::engine<device::host_device> engine(
        d, alone, s.table, test::parts_of(s, {.persistent = {1}}));
    engine.initialise(s.load);
    test::step_data const data(s, 0);
    std::string const said = message_of([&] {
      runtime::step_result const r = engine.step(data.get(), {});
      CHECK(r.skipped);
    });
    CHECK((skip ? said == ""
                : contains(said,
                           "block h.1: made the first number that is not "
                           "finite: dx, element 1")));
  }
}

TEST_CASE("blocks without an engine are guarded too") {
  for (fault const what : {fault::none, fault::scratch, fault::gradient}) {
    test::subject const s = sloppy_model(what);
    block::standalone alone(s.table, s.job());
    for (model::parameter const& p : s.facts.parameters) {
      auto const id =
          make_id<parameter_id>(static_cast<std::size_t>(&p - s.facts.parameters.data()));
      s.load(p, alone.value(id).elements_as<float>());
    }
    std::string const said = message_of([&] {
      alone.forward();
      alone.backward();
    });
    CHECK((what != fault::none || said == ""));
    CHECK((what != fault::scratch || contains(said, "operator 'add' wrote 64 B past its scratch")));
    CHECK((what != fault::gradient || contains(said, "wrote 256 B past gradient 'bias'")));
    CHECK(alone.intact());
  }
}

}  // namespace

}  // namespace debug_test
