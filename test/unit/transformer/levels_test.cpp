// SPDX-License-Identifier: Apache-2.0
// The save levels of GPT-2 and LLaMA: what they save, and the bits of a training at every one.

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/gpt2_values.hpp"
#include "examples/transformer/llama.hpp"
#include "examples/transformer/llama_values.hpp"
#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "test/support/differential.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace levels_test {

namespace {

using namespace protrain;

model::job job_of(dtype type) {
  return {.micro_batch = 2,
          .sequence = 16,
          .accumulate = 2,
          .type = type,
          .state = model::default_state(type),
          .clip = 0.05F,
          .seed = 11,
          .dropout = 0.1F};
}

constexpr model::gpt2_config gpt2{.layers = 3,
                                  .hidden = 32,
                                  .heads = 4,
                                  .inner = 128,
                                  .vocabulary = 256,
                                  .positions = 16,
                                  .dropout = 0.1};
constexpr model::llama_config llama{.layers = 3,
                                    .hidden = 32,
                                    .heads = 4,
                                    .key_heads = 2,
                                    .inner = 96,
                                    .vocabulary = 256,
                                    .positions = 16,
                                    .dropout = 0.1};

template <class T>
test::subject gpt2_of(dtype type) {
  model::job const job = job_of(type);
  return test::make_subject(transformer::make_gpt2<T>(gpt2),
                            job,
                            transformer::initial_values{.config = gpt2, .seed = job.seed});
}
template <class T>
test::subject llama_of(dtype type) {
  model::job const job = job_of(type);
  return test::make_subject(
      transformer::make_llama<T>(llama), job, transformer::llama_values{llama, job.seed});
}

/// Layers at these levels under an engine; peak of the device, and the plain loop's bits.
std::uint64_t check_levels(test::subject const& s,
                           test::outcome const& want,
                           std::vector<std::uint8_t> const& levels) {
  CAPTURE(levels[0]);
  CAPTURE(levels[2]);
  chunk::layout const l = chunk::make_layout(s.facts, 1U << 20U);
  schedule::knobs k{};
  k.persistent.assign(l.chunks.size(), 1);
  k.sites.assign(l.chunks.size(), update::site::gpu);
  k.strategies.assign(5, activation::strategy::keep);
  k.levels = {0, levels[0], levels[1], levels[2], 0};
  auto const p = schedule::compile(s.facts, l, k);
  REQUIRE(p.has_value());
  device::serial_device d({.order = device::run_policy::adversarial, .check_writes = true});
  auto const run = test::train_on(d, s, l, *p, 2);
  CHECK(test::difference(run.bits, want) == "");
  CHECK(run.memory == "");
  CHECK(run.unused == 0);
  return schedule::memory_of(*p, space::device).peak;
}

void check_model(test::subject const& s) {
  test::outcome const want = test::train_plain(s, 2);
  std::uint64_t const all = check_levels(s, want, {0, 0, 0});
  std::uint64_t const cheap = check_levels(s, want, {1, 1, 1});
  std::uint64_t const deep = check_levels(s, want, {2, 2, 2});
  CHECK(cheap < all);
  CHECK(deep < cheap);
  std::uint64_t const falling = check_levels(s, want, {2, 1, 0});
  std::uint64_t const rising = check_levels(s, want, {0, 1, 2});
  CHECK(falling <= rising);  // why the policy gives early blocks the deeper levels
}

}  // namespace

TEST_CASE("GPT-2's levels: bits at each, in fp32 and bf16, with dropout") {
  check_model(gpt2_of<float>(dtype::f32));
  check_model(gpt2_of<bfloat16>(dtype::bf16));
}

TEST_CASE("LLaMA's levels: bits at each, in fp32 and bf16, with dropout") {
  check_model(llama_of<float>(dtype::f32));
  check_model(llama_of<bfloat16>(dtype::bf16));
}

TEST_CASE("what levels save and cost at the size of GPT-2 and of Llama-3-8B") {
  auto const shape = [](auto const& model, model::job const& job) {
    return profile::dry_run(model, job, hw::h200x1()).shapes[1];
  };
  model::job const job{.micro_batch = 4,
                       .sequence = 1024,
                       .type = dtype::bf16,
                       .state = model::state_format::split_master,
                       .dropout = 0.1F};
  trace::block_shape const g = shape(transformer::make_gpt2<bfloat16>({.layers = 1,
                                                                       .hidden = 768,
                                                                       .heads = 12,
                                                                       .inner = 3072,
                                                                       .vocabulary = 256,
                                                                       .positions = 1024}),
                                     job);
  trace::block_shape const l = shape(transformer::make_llama<bfloat16>({.layers = 1,
                                                                        .hidden = 4096,
                                                                        .heads = 32,
                                                                        .key_heads = 8,
                                                                        .inner = 14336,
                                                                        .vocabulary = 256,
                                                                        .positions = 1024}),
                                     job);
  for (trace::block_shape const& s : {g, l}) {
    REQUIRE(s.levels.size() == 2);
    CHECK(s.levels[0].name == "cheap");
    CHECK(s.levels[1].name == "attention");
    for (trace::save_level const& level : s.levels) {
      CHECK(level.saved.value + level.rebuilt.value == s.saved.value);
      CHECK(level.reads_input);
    }
    CHECK(s.levels[0].rebuild * 4 < s.forward);
    CHECK(s.levels[1].rebuild < s.forward);
  }
  // Rows of 768 values: norms 2, gelu 4 of the 15 beside the probabilities (12 x 1024).
  std::uint64_t const rows = 4096;
  CHECK(g.levels[0].rebuilt.value == rows * 768 * 6 * 2);
  CHECK(g.levels[1].rebuilt.value == rows * (768 * 13 + 12 * 1024) * 2);
  CHECK(l.levels[0].rebuilt.value == rows * (2 * 4096 + 14336) * 2);
  CHECK(l.levels[1].rebuilt.value == rows * (2 * 4096 + 6144 + 32 * 1024 + 3 * 14336) * 2);
}

}  // namespace levels_test
