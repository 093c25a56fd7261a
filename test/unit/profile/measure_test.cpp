// SPDX-License-Identifier: Apache-2.0
// Measuring block by block: bytes of the dry run, memory of one block, times by operator.

#include "protrain/profile/measure.hpp"

#include "examples/cli/model.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/profile/dry_run.hpp"
#include "test/support/mlp.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/synthetic.hpp"
#include "test/unit/profile/devices.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace measure_test {

namespace {

using namespace protrain;
using profile::device_need;
using profile::dry_run;
using profile::measure;
using profile::measure_options;
using profile::profile_error;

constexpr model::job half{.micro_batch = 4,
                          .sequence = 2,
                          .type = dtype::bf16,
                          .state = model::state_format::split_master};
constexpr model::job full{.micro_batch = 2, .sequence = 3, .dropout = 0.1F};
measure_options const once{.warm_up = 0, .repetitions = 1};

/// What a dry run knows of a trace.
trace::trace without_times(trace::trace t) {
  t.from = trace::source::dry_run;
  t.outside = {};
  for (trace::block_shape& s : t.shapes) {
    s.forward = {};
    s.backward = {};
    for (trace::save_level& l : s.levels) {
      l.rebuild = {};
    }
    for (trace::operator_facts& o : s.operators) {
      o.forward = {};
      o.backward = {};
    }
  }
  return t;
}

/// Measured on any device: nothing is left, the device had room for one block.
template <class Device>
void check_measured(Device& device, block::table const& t, model::job const& job) {
  trace::trace const m = measure(device, t, job, once);
  trace::trace const dry = dry_run(t, job);
  CHECK(m.from == trace::source::measured);
  CHECK(without_times(m) == dry);
  CHECK(trace::fingerprint(m) == trace::fingerprint(dry));
  CHECK(device.usage_of(space::device).live == 0);
  CHECK(device.usage_of(space::device).peak == device_need(t, job).value);
  CHECK(device.usage_of(space::host).peak == 0);
  for (trace::block_shape const& s : m.shapes) {
    std::uint64_t forward = 0;
    std::uint64_t backward = 0;
    for (trace::operator_facts const& o : s.operators) {
      forward += o.forward.value;
      backward += o.backward.value;
    }
    CHECK(forward <= s.forward.value);
    CHECK(backward <= s.backward.value);
  }
}

void check_everywhere(block::table const& t, model::job const& job) {
  device::serial_device strict({.check_writes = t.parameters.size() < 12});
  check_measured(strict, t, job);
  device::host_device host;
  check_measured(host, t, job);
}

/// A block in the middle of nothing, named "lone".
template <class Describe, class Forward, class Backward>
auto lone(Describe describe, Forward forward, Backward backward) {
  return stack{make_block(
      [describe](block_builder& b) {
        b.name("lone");
        describe(b);
      },
      forward,
      backward)};
}

void nothing(scope&, tensor_view, tensor_view) {}
void nothing_back(scope&, tensor_view, tensor_view, tensor_view) {}

/// What the next exception says, and what it holds.
struct refusal {
  std::string what{};
  std::string block{};
  std::string op{};
  std::string nested{};
};
template <class F>
refusal refused(F const& f) {
  try {
    f();
  } catch (profile_error const& e) {
    refusal out{e.what(), e.block(), e.operator_name(), ""};
    try {
      std::rethrow_if_nested(e);
    } catch (std::exception const& inner) {
      out.nested = inner.what();
    } catch (...) {
      out.nested = "something";
    }
    return out;
  } catch (std::exception const& e) {
    return {.what = e.what()};
  }
  return {};
}

}  // namespace

TEST_CASE("bytes and fingerprint are the dry run's, in the memory of one block") {
  check_everywhere(test::make_mlp<float>({.layers = 5}).entries(full), full);
}

TEST_CASE("so they are for bf16 with a tied weight, and with nothing to repeat") {
  auto const tied = test::make_mlp<bfloat16>({.layers = 2, .tied = true});
  check_everywhere(tied.entries(half), half);
  auto const none = test::make_mlp<bfloat16>({.layers = 0});
  check_everywhere(none.entries(half), half);
}

TEST_CASE("so they are for a GPT-2 and a LLaMA") {
  for (model::config const& config : {model::config(model::gpt2_config{.layers = 4,
                                                                       .hidden = 32,
                                                                       .heads = 4,
                                                                       .inner = 128,
                                                                       .vocabulary = 256,
                                                                       .positions = 32}),
                                      model::config(model::llama_config{.layers = 4,
                                                                        .hidden = 32,
                                                                        .heads = 4,
                                                                        .key_heads = 2,
                                                                        .inner = 96,
                                                                        .vocabulary = 256,
                                                                        .positions = 32})}) {
    for (dtype const type : {dtype::f32, dtype::bf16}) {
      model::job const job{.micro_batch = 2,
                           .sequence = 32,
                           .type = type,
                           .state = model::default_state(type),
                           .dropout = 0.1F};
      auto const built = cli::build_model(config, job);
      check_everywhere(built.table, job);
    }
  }
}

TEST_CASE("so they are for blocks of any bytes") {
  for (std::uint64_t seed = 1; seed <= test::scaled(12); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    test::synthetic_model const model(c.facts);
    check_everywhere(model.entries(c.facts.job), c.facts.job);
  }
}

TEST_CASE("the memory of one block, counted by hand") {
  // Granules of a layer: weight, bias, losses, x; h takes 2; then either y, or dy, dx, two
  // gradients and two of 2 for scratch.
  auto const layers = test::make_mlp<bfloat16>({.features = 6, .hidden = 10, .layers = 3});
  CHECK(device_need(layers.entries(half), half) == bytes{(4 + 2 + 4 + 4) * 256});
  // The input: weight, bias, features, losses; then dy, two gradients and 2 of scratch.
  auto const input = test::make_mlp<bfloat16>({.features = 200, .hidden = 10, .layers = 1});
  std::uint64_t const weight = 4096;    // bf16[10, 200]
  std::uint64_t const features = 6400;  // fp32[8, 200]
  CHECK(device_need(input.entries(half), half) ==
        bytes{2 * weight + features + (1 + 1) * 256 + (1 + 1 + 2) * 256});
}

TEST_CASE("a model twenty times the device's memory is measured, each shape once per repetition") {
  std::atomic<std::uint32_t> forwards{0};
  std::atomic<std::uint32_t> backwards{0};
  auto const counted = [&](std::uint32_t width) {
    return make_block(
        [width](block_builder& b) {
          b.name("w" + std::to_string(width));
          b.parameter("w" + std::to_string(width), {width});
          width > 1000 ? b.input({64}) : b.reads_input(false);
          if (width < 1007) {
            b.output({64});
          }
        },
        [&](scope& s, tensor_view, tensor_view) { s.run([&] { ++forwards; }); },
        [&](scope& s, tensor_view, tensor_view, tensor_view) { s.run([&] { ++backwards; }); });
  };
  stack const model{
      counted(1000),
      repeat(60,
             make_block(
                 [](block_builder& b) {
                   b.parameter("w", {1000});
                   b.input({64});
                   b.output({64});
                 },
                 [&](scope& s, tensor_view, tensor_view) { s.run([&] { ++forwards; }); },
                 [&](scope& s, tensor_view, tensor_view, tensor_view) {
                   s.run([&] { ++backwards; });
                 })),
      counted(1007)};
  auto const t = model.entries(full);
  std::uint64_t const need = device_need(t, full).value;
  std::uint64_t parameters = 0;
  for (model::parameter const& p : t.parameters) {
    parameters += 4 * model::elements(p);
  }
  std::uint64_t const room = round_up(need, device::page_bytes);
  CHECK(parameters >= 20 * room);
  device::host_device device({.limit = {room, 1}});
  trace::trace const m = measure(device, t, full, {.warm_up = 2, .repetitions = 5});
  CHECK(m.shapes.size() == 3);
  CHECK(m.blocks.size() == 62);
  CHECK(forwards == 3 * 7);
  CHECK(backwards == 3 * 7);
  CHECK(device.usage_of(space::device).peak == need);

  device::host_device small({.limit = {need - 1, 1}});
  refusal const r = refused([&] { measure(small, t, full); });
  CHECK(r.block == "h.0");
  CHECK(r.what.starts_with("block h.0: to be measured alone it takes " + std::to_string(need) +
                           " bytes: reserve: device memory: asked for"));
}

TEST_CASE("time, saved bytes and scratch belong to the innermost operator") {
  test::clocked_device device;
  auto const ms = [&](scope const& s, std::uint64_t n) {
    s.run([&] { device.advance(1_ms * n); });
  };
  auto const model = lone([](block_builder&) {},
                          [&](scope& s, tensor_view, tensor_view) {
                            ms(s, 1);
                            s.save("outside", dtype::u8, {300});
                            {
                              auto const one = s.op("one");
                              ms(s, 2);
                              s.save("inside", dtype::u8, {1});
                              s.scratch(dtype::u8, {600});
                              {
                                auto const deep = s.op("deep");
                                ms(s, 4);
                                s.scratch(dtype::u8, {256});
                                s.save("deeper", dtype::u8, {700});
                              }
                              ms(s, 8);
                              s.save("inside again", dtype::u8, {1});
                            }
                            ms(s, 16);
                            s.scratch(dtype::u8, {100});
                            {
                              auto const two = s.op("two");
                              ms(s, 32);
                            }
                            auto const one = s.op("one");
                            ms(s, 64);
                          },
                          [&](scope& s, tensor_view, tensor_view, tensor_view) {
                            s.scratch(dtype::u8, {1000});
                            auto const two = s.op("two");
                            ms(s, 128);
                            s.scratch(dtype::u8, {1});
                            auto const three = s.op("three");
                            ms(s, 256);
                          });
  trace::trace const m = measure(device, model, full);
  REQUIRE(m.shapes.size() == 1);
  trace::block_shape const& s = m.shapes[0];
  CHECK(s.forward == 127_ms);
  CHECK(s.backward == 384_ms);
  CHECK(s.saved == bytes{512 + 256 + 768 + 256});
  CHECK(s.scratch_forward == bytes{768 + 256});
  CHECK(s.scratch_backward == bytes{1024 + 256});
  CHECK(s.operators == std::vector<trace::operator_facts>{
                           {.name = "one",
                            .forward = 74_ms,
                            .scratch_peak = {768 + 256},
                            .saved = {512},
                            .delta_before = {512}},
                           {.name = "deep", .forward = 4_ms, .scratch_peak = {256}, .saved = {768}},
                           {.name = "two",
                            .forward = 32_ms,
                            .backward = 128_ms,
                            .scratch_peak = {256},
                            .delta_before = {256 + 1024}},
                           {.name = "three", .backward = 256_ms}});
}

TEST_CASE("what a save level drops is made again, and timed, in the memory of one block") {
  test::clocked_device device;
  auto const by_level = [&](scope& s, char const* what) {
    s.run([&] { device.advance(1_ms * (what[0] == 'a' ? 3 : 40)); });
  };
  auto const layer = make_block(
      [](block_builder& b) {
        b.name("layer");
        b.level("half", {.reads_input = false});
        b.level("all");
      },
      [](scope& s, tensor_view, tensor_view) {
        for (tensor_view const& t : {s.save("a", dtype::u8, {256}, dropped_at{level_ref{1}}),
                                     s.save("b", dtype::u8, {512}, dropped_at{level_ref{2}})}) {
          s.run([&] { std::fill_n(t.raw(), t.bytes(), std::byte{7}); });
        }
      },
      [](scope& s, tensor_view, tensor_view, tensor_view) {
        s.run([&] {
          CHECK(s.saved("a").raw()[255] == std::byte{7});
          CHECK(s.saved("b").raw()[511] == std::byte{7});
        });
      },
      [&](scope& s, tensor_view) {
        s.scratch(dtype::u8, {s.dropped("b") ? 5000 : 300});
        if (!s.dropped("b")) {
          s.run([&] { CHECK(s.saved("b").raw()[511] == std::byte{7}); });
        }
        s.rebuild("a");
        by_level(s, "a");
        if (s.dropped("b")) {
          s.rebuild("b");
          by_level(s, "b");
        }
      });
  stack const model{layer};
  trace::trace const m = measure(device, model, full);
  REQUIRE(m.shapes[0].levels.size() == 2);
  CHECK(m.shapes[0].levels[0].rebuild == 3_ms);
  CHECK(m.shapes[0].levels[1].rebuild == 43_ms);
  CHECK(without_times(m) == dry_run(model, full));
  std::uint64_t const need = 256 + (256 + 512) + 5120;  // losses, what is saved, scratch
  CHECK(device.usage_of(space::device).peak == need);
  CHECK(device_need(model.entries(full), full) == bytes{need});
  CHECK(device.usage_of(space::device).live == 0);
}

TEST_CASE("of several runs the median counts, with its operators, and the first ones don't") {
  test::clocked_device device;
  std::size_t runs = 0;
  auto const model =
      lone([](block_builder&) {},
           [&](scope& s, tensor_view, tensor_view) {
             s.run([&] {
               device.advance(1_ms * std::vector<std::uint64_t>{900, 90, 3, 1, 2, 9}.at(runs));
             });
             s.op("rest").run([&] {
               device.advance(1_ms * std::vector<std::uint64_t>{0, 0, 1, 0, 7, 5}.at(runs));
               ++runs;
             });
           },
           nothing_back);
  trace::trace const m = measure(device, model, full, {.warm_up = 2, .repetitions = 4});
  CHECK(runs == 6);
  CHECK(m.shapes[0].forward == 4_ms);  // of 4, 1, 9, 14
  CHECK(m.shapes[0].operators[0].forward == 1_ms);
  CHECK(m.shapes[0].backward == picoseconds{});
}

TEST_CASE("a device that runs ahead of its work is timed by its stamps") {
  test::stamped_device device;
  auto const model = lone(
      [](block_builder&) {},
      [&](scope& s, tensor_view, tensor_view) {
        s.run([&] {
          device.advance(77_ms);  // of the caller's time
          device.work(5_ms);
        });
        s.op("product").run([&] { device.work(11_ms); });
      },
      [&](scope& s, tensor_view, tensor_view, tensor_view) { s.run([&] { device.work(3_ms); }); });
  trace::trace const m = measure(device, model, full);
  CHECK(m.shapes[0].forward == 16_ms);
  CHECK(m.shapes[0].operators[0].forward == 11_ms);
  CHECK(m.shapes[0].backward == 3_ms);
  CHECK(device.stamped_on_compute);
}

TEST_CASE("memory taken outside the library is the largest reading between blocks") {
  test::growing_device device;
  auto const taking = [&](std::uint64_t total) {
    return [&device, total](scope& s, tensor_view, tensor_view) {
      s.run([&] { device.take(total); });
    };
  };
  auto const first =
      make_block([](block_builder& b) { b.output({8}); }, taking(5000), nothing_back);
  auto const middle = make_block(
      [](block_builder& b) {
        b.input({8});
        b.output({8});
      },
      taking(9000),
      nothing_back);
  auto const last = make_block([](block_builder& b) { b.input({8}); }, taking(7000), nothing_back);
  auto const model = stack{first, middle, last};
  CHECK(measure(device, model, full).outside == bytes{9000});
  CHECK(measure(device, model, full, {.outside = [] { return std::uint64_t{12}; }}).outside ==
        bytes{12});
  device.take(20'000);  // before anything runs
  CHECK(measure(device, model, full).outside == bytes{20'000});
  device::host_device none;
  CHECK(measure(none, model, full).outside == bytes{0});
}

TEST_CASE("a block that throws is named, with its operator, and nothing is left") {
  auto const failing = [](auto const& fail, bool in_backward) {
    auto const run = [fail](scope& s) {
      auto const outer = s.op("outer");
      {
        auto const fine = s.op("fine");
      }
      auto const inner = s.op("inner");
      s.run([&] { fail(s); });
    };
    return lone([](block_builder& b) { b.parameter("w", {300}); },
                [=](scope& s, tensor_view, tensor_view) {
                  s.save("a", dtype::u8, {300});
                  if (!in_backward) {
                    run(s);
                  }
                },
                [=](scope& s, tensor_view, tensor_view, tensor_view) {
                  if (in_backward) {
                    run(s);
                  }
                });
  };
  auto const check = [&](auto& device, auto const& fail) {
    for (bool const in_backward : {false, true}) {
      auto const model = failing(fail, in_backward);
      refusal const r = refused([&] { measure(device, model, full); });
      CHECK(device.usage_of(space::device).live == 0);
      CHECK(without_times(measure(device, test::make_mlp<float>({}), full)) ==
            dry_run(test::make_mlp<float>({}), full));
      if (in_backward) {
        return r;
      }
      CHECK(r.what.find("'inner'") != std::string::npos);
    }
    return refusal{};
  };
  auto const on = [&](auto& device) {
    refusal const r = check(device, [](scope&) { throw std::runtime_error("no luck"); });
    CHECK(r.what == "block lone: operator 'inner' in backward: no luck");
    CHECK(r.block == "lone");
    CHECK(r.op == "inner");
    CHECK(r.nested == "no luck");
    refusal const odd = check(device, [](scope&) { throw 7; });
    CHECK(odd.what == "block lone: operator 'inner' in backward: threw what is no std::exception");
    CHECK(odd.nested == "something");
    refusal const greedy = check(device, [](scope& s) { s.scratch(dtype::u8, {100}); });
    CHECK(greedy.what.starts_with("block lone: operator 'inner' asks for 100 bytes of scratch"));
  };
  device::serial_device serial;
  on(serial);
  device::host_device host;
  on(host);

  auto const outside = lone([](block_builder&) {},
                            [](scope& s, tensor_view, tensor_view) {
                              {
                                auto const done = s.op("done");
                              }
                              s.run([] { throw std::runtime_error("late"); });
                            },
                            nothing_back);
  CHECK(refused([&] { measure(serial, outside, full); }).what == "block lone: forward: late");
}

TEST_CASE("whichever call of the device fails, nothing is left and the next try succeeds") {
  auto const model = test::make_mlp<float>({.layers = 1});
  device::serial_device device;
  std::uint64_t n = 0;
  for (bool done = false; !done;) {
    device.fail_after(++n);
    try {
      measure(device, model, full, once);
      done = true;
    } catch (std::exception const& e) {
      CHECK(std::string(e.what()).find("injected fault") != std::string::npos);
    }
    device.fail_after(0);
    CHECK(device.usage_of(space::device).live == 0);
  }
  CHECK(n > 30);
  CHECK(without_times(measure(device, model, full)) == dry_run(model, full));
}

TEST_CASE("blocks compute with ordinary numbers") {
  bool ran = false;
  auto const model = lone(
      [](block_builder& b) {
        b.parameter("w", {3000});
        b.parameter("half", {3000}, {.type = dtype::bf16});
        b.batch("x", dtype::f32, {64});
        b.batch("tokens", dtype::i32, {64});
      },
      [&](scope& s, tensor_view, tensor_view) {
        s.run([&] {
          ran = true;
          std::uint64_t distinct = 0;
          for (std::uint64_t i = 0; i < 3000; ++i) {
            float const w = s.value({0}).as<float const>()[i];
            float const h = to_float(s.value({1}).as<bfloat16 const>()[i]);
            CHECK(std::fabs(w) <= 0x1p-4F);
            CHECK(std::fabs(h) <= 0x1p-4F);
            CHECK((w == 0 || std::isnormal(w)));
            distinct += w != s.value({0}).as<float const>()[i / 2] ? 1U : 0U;
          }
          CHECK(distinct > 2900);
          for (std::uint64_t i = 0; i < 64; ++i) {
            CHECK(std::fabs(s.batch("x").as<float const>()[i]) <= 0.5F);
            CHECK(static_cast<std::uint32_t>(s.batch("tokens").as<std::int32_t const>()[i]) <= 1);
          }
          CHECK(s.losses().as<float>()[0] == 0);
          s.loss(0, 1);
        });
      },
      [&](scope& s, tensor_view, tensor_view, tensor_view) {
        s.run([&] {
          CHECK(s.loss_scale() == 1.0F / 6);
          CHECK(s.gradient({0}).as<float>()[2999] == 0);
          s.gradient({0}).as<float>()[2999] = 1;
        });
      });
  device::serial_device device;
  measure(device, model, full);
  CHECK(ran);
}

namespace {

/// A batch as the engine takes it.
struct some_batch {
  struct tensor {
    std::string name;
    void const* data;
    std::uint64_t bytes;
  };
  std::vector<tensor> all;
  std::vector<tensor> const& tensors() const { return all; }
};

}  // namespace

TEST_CASE("a batch that is given is used, its first micro-batch") {
  std::vector<float> values(128, 3.0F);
  values[64] = 4;
  bool seen = false;
  auto const model = lone([](block_builder& b) { b.batch("x", dtype::f32, {64}); },
                          [&](scope& s, tensor_view, tensor_view) {
                            s.run([&] { seen = s.batch("x").as<float const>()[63] == 3; });
                          },
                          nothing_back);
  device::host_device device;
  measure(device, model, full, some_batch{{{"more", nullptr, 0}, {"x", values.data(), 512}}});
  CHECK(seen);
  CHECK(refused([&] {
          measure(device, model, full, some_batch{{{"x", values.data(), 255}}});
        }).what == "batch tensor 'x' has 255 bytes, a micro-batch has 256");
  CHECK(refused([&] {
          measure(device, model, full, some_batch{{{"y", values.data(), 512}}});
        }).what == "the batch has no tensor 'x', which the model reads");
  CHECK(refused([&] { measure(device, model, full, some_batch{}); }).what ==
        "the batch has no tensors, but the model reads 'x'");
}

TEST_CASE("frozen parameters have no gradient, and empty ones no memory") {
  auto const model = lone(
      [](block_builder& b) {
        b.parameter("frozen", {64}, {.trainable = false});
        b.parameter("empty", {0, 7});
      },
      nothing,
      [](scope& s, tensor_view, tensor_view, tensor_view) {
        s.run([&] { CHECK(s.gradient({0}).data == nullptr); });
      });
  auto const t = model.entries(full);
  CHECK(device_need(t, full) == bytes{256 + 256});  // the frozen one, and losses
  check_everywhere(t, full);
}

}  // namespace measure_test
