// SPDX-License-Identifier: Apache-2.0
// LLaMA as blocks: what its shape foretells, recomputation, and plans that give the plain loop's
// bits.

#include "examples/transformer/llama.hpp"

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/config.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/profile/dry_run.hpp"
#include "test/support/differential.hpp"
#include "test/support/plain_run.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

namespace llama_test {

namespace {

using namespace protrain;
using model::llama_config;

llama_config tiny() {
  return std::get<llama_config>(io::read_config("examples/models/tiny-llama.json"));
}

template <class T>
test::subject subject_of(llama_config const& c, model::job const& j) {
  return test::make_subject(transformer::make_llama<T>(c), j, transformer::llama_values{c, j.seed});
}
test::subject subject_of(llama_config const& c, model::job const& j) {
  return j.type == dtype::bf16 ? subject_of<bfloat16>(c, j) : subject_of<float>(c, j);
}

void check_facts(llama_config const& c, model::job const& j) {
  test::subject const s = subject_of(c, j);
  CHECK(s.facts.parameters == llama_parameters(c, j.type));
  auto const check = [&](std::size_t block, model::llama_block_facts const& want) {
    trace::block_shape const& shape = s.facts.shape(make_id<block_id>(block));
    CHECK(shape.input.value == want.input);
    CHECK(shape.output.value == want.output);
    CHECK(shape.saved.value == want.saved);
    CHECK(profile::forward_flops(s.table.blocks[block], j) == want.flops);
  };
  check(0, llama_embedding_facts(c, j));
  check(1, llama_layer_facts(c, j));
  check(c.layers, llama_layer_facts(c, j));
  check(c.layers + 1, llama_head_facts(c, j));
  CHECK(s.facts.blocks.size() == c.layers + 2);
  CHECK(s.facts.shapes.size() == 3);
}

/// The plan that a string means, on a machine that any plan fits.
plan::plan planned(test::subject const& s, std::string const& string) {
  auto const wanted = plan::parse(string, s.job());
  REQUIRE(wanted.has_value());
  hw::machine const m = hw::host_demo();
  auto found =
      plan::make(s.facts, m, {m.device_memory, m.host_memory}, plan::policies<>{}, *wanted);
  REQUIRE_MESSAGE(found.has_value(), std::string(found ? "" : found.failure().reason));
  return std::move(found).value();
}

void check_same_bits(llama_config const& c, model::job const& j) {
  test::subject const s = subject_of(c, j);
  constexpr std::uint64_t steps = 3;
  test::outcome const plain = test::train_plain(s, steps);
  for (std::string const string : {"keep_all",
                                   "offload_all",
                                   "checkpoint_all",
                                   "persist=1,swap=2,checkpoint=2",
                                   "persist=1:,buffer=9,checkpoint=1",
                                   "chunk=65536,persist=1,swap=1,checkpoint=2"}) {
    CAPTURE(string);
    plan::plan const p = planned(s, string);
    auto const programs = p.segments();
    REQUIRE(programs.has_value());
    device::serial_device d;
    auto const run = test::train_on(d, s, p.layout, *programs, steps);
    CHECK(test::difference(run.bits, plain) == "");
    CHECK(run.memory == "");
    CHECK(run.unused == 0);
  }
}

TEST_CASE("the file of the tiny model says what the documents say") {
  CHECK(tiny() == llama_config{.layers = 4,
                               .hidden = 32,
                               .heads = 4,
                               .key_heads = 2,
                               .inner = 96,
                               .vocabulary = 256,
                               .positions = 32});
}

TEST_CASE("parameters, bytes and operations are those that the shape foretells") {
  llama_config wide = tiny();
  wide.head_channels = 10;
  wide.key_heads = 1;
  wide.inner = 50;
  wide.tied = true;
  for (llama_config const& c : {tiny(), wide}) {
    check_facts(c, {.micro_batch = 3, .sequence = 32});
    check_facts(c, {.sequence = 7, .dropout = 0.5F});
    check_facts(c,
                {.micro_batch = 2,
                 .sequence = 31,
                 .type = dtype::bf16,
                 .state = model::state_format::split_master});
  }
}

TEST_CASE("Llama-3.2-1B: its blocks' bytes, without a tensor") {
  check_facts({.layers = 16,
               .hidden = 2048,
               .heads = 32,
               .key_heads = 8,
               .inner = 8192,
               .vocabulary = 128'256,
               .positions = 131'072,
               .tied = true,
               .rope_theta = 500'000},
              {.micro_batch = 4,
               .sequence = 2048,
               .type = dtype::bf16,
               .state = model::state_format::split_master});
}

TEST_CASE("recomputation gives the same gradients, with and without dropout") {
  for (float const dropout : {0.0F, 0.3F}) {
    test::subject const s =
        subject_of(tiny(), {.micro_batch = 2, .sequence = 9, .dropout = dropout});
    block::standalone owner(s.table, s.job());
    for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
      tensor_view const value = owner.value(make_id<parameter_id>(i));
      s.load(s.table.parameters[i], {value.as<float>(), value.elements()});
    }
    auto const load = [&](block::standalone& to, std::uint64_t) {
      for (char const* const name : {"tokens", "targets"}) {
        tensor_view const t = to.batch(name);
        for (std::uint64_t i = 0; i < t.elements(); ++i) {
          t.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % 251);
        }
      }
    };
    auto const once = test::plain_step(owner, s.table, s.job(), 0, load);
    CHECK(once == test::plain_step(owner, s.table, s.job(), 0, load, true));
    CHECK(once.losses[0] / 9 == doctest::Approx(5.545).epsilon(0.05));  // about ln 256
  }
}

TEST_CASE("every plan gives the bits of the plain loop in the memory predicted") {
  check_same_bits(tiny(), {.micro_batch = 2, .sequence = 32});
  llama_config tied = tiny();
  tied.tied = true;
  check_same_bits(tied,
                  {.micro_batch = 2,
                   .sequence = 17,
                   .accumulate = 3,
                   .type = dtype::bf16,
                   .state = model::state_format::split_master,
                   .clip = 0.05F,
                   .dropout = 0.1F});
}

}  // namespace

}  // namespace llama_test
