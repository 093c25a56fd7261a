// SPDX-License-Identifier: Apache-2.0
// Shapes on which planners of this kind fail in the field, as published, and others of their kind.

#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace planner_pitfalls_test {

namespace {

using namespace protrain;

struct tensor {
  std::uint64_t elements = 0;
  bool trainable = true;
};

/// A block for each list, in bf16 with split masters.
trace::trace job_of(std::vector<std::vector<tensor>> const& blocks, float clip = 0) {
  trace::trace t{
      .job = {.type = dtype::bf16, .state = model::state_format::split_master, .clip = clip}};
  t.shapes = {{.name = "block"}};
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    t.blocks.push_back(shape_id{0});
    for (tensor const& each : blocks[b]) {
      t.parameters.push_back({.name = "w",
                              .shape = {each.elements},
                              .type = dtype::bf16,
                              .trainable = each.trainable,
                              .uses = {make_id<block_id>(b)}});
    }
  }
  return t;
}

/// A step with every chunk persistent, or none; verified.
schedule::program step_of(trace::trace const& t,
                          chunk::layout const& l,
                          bool persistent,
                          update::timing time = update::timing::after_backward) {
  schedule::knobs k{};
  k.persistent.assign(l.chunks.size(), persistent ? 1 : 0);
  k.sites.assign(l.chunks.size(), persistent ? update::site::gpu : update::site::cpu);
  k.strategies.assign(t.blocks.size(), activation::strategy::keep);
  k.buffers = schedule::fewest_buffers(l, k.persistent);
  k.time = time;
  auto const p = schedule::compile(t, l, k);
  REQUIRE(p.has_value());
  std::uint64_t const all = ~std::uint64_t{0};
  REQUIRE(schedule::verify(*p, t, l, all, all).ok);
  return *p;
}

std::uint64_t bytes_of(schedule::program const& p, space where, category what) {
  return schedule::memory_of(p, where).maximum[static_cast<std::size_t>(what)];
}

std::uint64_t bytes_of(schedule::program const& p, category what) {
  return bytes_of(p, space::device, what) + bytes_of(p, space::host, what);
}

}  // namespace

TEST_CASE(
    "pinned memory rounds up to a power of two: a plan asks for what it needs, to a granule") {
  for (auto const& [blocks, n] : std::vector<std::pair<std::size_t, std::uint64_t>>{
           {84, 135'790'592 / 2}, {12, 7'087'872}, {5, 129}, {3, (1U << 25U) + 1}}) {
    trace::trace const t = job_of(std::vector(blocks, std::vector{tensor{n}}));
    schedule::program const p = step_of(t, chunk::make_layout(t, n), false);
    std::uint64_t const chunk = round_up(n, element_granule);
    schedule::memory_report const host = schedule::memory_of(p, space::host);
    CHECK(bytes_of(p, space::host, category::parameters) == blocks * 2 * chunk);
    CHECK(bytes_of(p, space::host, category::optimizer) == blocks * 10 * chunk);
    std::uint64_t asked = 0;
    for (std::size_t c = 0; c < category_count; ++c) {
      bool const derived =
          category(c) == category::padding || category(c) == category::fragmentation;
      asked += derived ? 0 : host.at_peak[c];
    }
    CHECK(host.peak <= asked + address_granule * p.allocations.size());
    if (std::bit_ceil(2 * chunk) > 2 * chunk) {
      CHECK(host.peak < blocks * (std::bit_ceil(2 * chunk) + std::bit_ceil(10 * chunk)));
    }
  }
}

TEST_CASE("frozen parameters get state: of 1,451,376,640 and 106,496 only the second, and others") {
  struct sizes {
    std::uint64_t frozen;
    std::uint64_t trainable;
  };
  for (sizes const& n : {sizes{1'451'376'640, 106'496}, {256, 128'000}, {9'000'192, 512}}) {
    std::uint64_t const part = n.trainable / 4;
    for (float const clip : {0.0F, 1.0F}) {
      std::uint64_t const some = n.frozen / 2;
      trace::trace const t = job_of(
          {{{some, false}, {part}}, {{n.frozen - some, false}, {part}}, {{part}}, {{part}}}, clip);
      chunk::layout const l = chunk::make_layout(t, part);
      for (bool const persistent : {false, true}) {
        auto const time =
            clip == 0 ? update::timing::during_backward : update::timing::after_backward;
        schedule::program const p = step_of(t, l, persistent, time);
        CHECK(bytes_of(p, category::optimizer) == 10 * n.trainable);
        CHECK(bytes_of(p, category::parameters) == 2 * (n.frozen + n.trainable));
        // Two slots of one chunk's gradient, on the host too where updates start at once; a store
        // of all where they wait for the norm.
        std::uint64_t const slots = 2 * 2 * part;
        std::uint64_t const store = clip != 0 ? 2 * n.trainable : 0;
        CHECK(bytes_of(p, space::device, category::gradients) == slots + (persistent ? store : 0));
        CHECK(bytes_of(p, space::host, category::gradients) == (persistent   ? 0
                                                                : store != 0 ? store
                                                                             : slots));
        for (schedule::instruction const& i : p.instructions) {
          bool const comes_back = i.op == schedule::opcode::offload ||
                                  i.op == schedule::opcode::update ||
                                  i.op == schedule::opcode::reduce;
          CHECK_FALSE((comes_back && !l[i.chunk].trainable));
        }
      }
    }
  }
}

TEST_CASE("32-bit counts: programs reach the first and the last byte of tensors beyond them") {
  for (std::uint64_t const n : {250'880ULL * 14'336, 152'064ULL * 8192, 1ULL << 33U}) {
    CAPTURE(n);
    trace::trace const t = job_of({{{n}, {7}}, {{256}}}, 1.0F);
    for (std::uint64_t const capacity : {std::uint64_t{1} << 34U, std::uint64_t{4096}}) {
      chunk::layout const l = chunk::make_layout(t, capacity);
      schedule::program const p = step_of(t, l, false);
      CHECK(bytes_of(p, space::host, category::parameters) >= 2 * (n + 7));
      CHECK(bytes_of(p, space::host, category::optimizer) >= 10 * (n + 7));
      std::uint64_t uploaded = 0;
      std::uint64_t updated = 0;
      for (schedule::instruction const& i : p.instructions) {
        bool const first = i.op == schedule::opcode::upload && i.chunk == chunk_id{0};
        uploaded = first ? i.amount : uploaded;
        updated += i.op == schedule::opcode::update ? i.amount : 0;
      }
      CHECK(uploaded == 2 * l.chunks[0].elements);
      CHECK(updated >= n + 7 + 256);
      CHECK(schedule::memory_of(p, space::host).peak > 12 * n);
    }
  }
}

TEST_CASE(
    "32-bit counts: copies of more bytes, of every kind, from the program to its simulation") {
  constexpr std::uint64_t least = (1ULL << 32U) + 1;
  trace::trace t = job_of({{{least}}, {{least}}, {{256}}}, 1.0F);
  t.shapes[0].saved = {granules(3 * least)};
  t.shapes[0].input = {256};
  t.shapes[0].output = {256};
  chunk::layout const l = chunk::make_layout(t, least);
  schedule::knobs k{.persistent = {0, 0, 0}, .sites = {update::site::cpu, update::site::streamed}};
  k.sites.resize(l.chunks.size(), update::site::cpu);
  k.persistent.resize(l.chunks.size(), 0);
  k.strategies.assign(t.blocks.size(), activation::strategy::swap);
  k.buffers = schedule::fewest_buffers(l, k.persistent);
  k.stream_parts = 1;
  auto const p = schedule::compile(t, l, k);
  REQUIRE(p.has_value());
  hw::machine const m = hw::h200x1();
  auto const durations = sim::durations_of(*p, t, m);
  std::set<schedule::opcode> large;
  for (std::size_t i = 0; i < p->instructions.size(); ++i) {
    schedule::instruction const& at = p->instructions[i];
    bool const up = at.queue == queue_id::h2d;
    if (at.amount > 1ULL << 32U && (up || at.queue == queue_id::d2h)) {
      large.insert(at.op);
      CHECK(durations[i] ==
            link::copy_time(link::fixed{},
                            m,
                            up ? link::channel::host_to_device : link::channel::device_to_host,
                            at.amount));
    }
  }
  using enum schedule::opcode;
  CHECK(large == std::set{upload, swap_out, swap_in, offload, state_in, state_out});
  // One after the other on one link: all of them count.
  picoseconds all{};
  for (std::size_t i = 0; i < durations.size(); ++i) {
    all += p->instructions[i].queue == queue_id::h2d ? durations[i] : picoseconds{};
  }
  CHECK(sim::simulate(*p, durations).finish >= all);
}

TEST_CASE("embedding against one block: it inflates no chunk, whatever their ratio") {
  struct published {
    char const* name;
    model::llama_config shape;
    double ratio;
  };
  for (published const& m : {published{"Llama-3-8B",
                                       {.layers = 32,
                                        .hidden = 4096,
                                        .heads = 32,
                                        .key_heads = 8,
                                        .inner = 14'336,
                                        .vocabulary = 128'256},
                                       2.4},
                             published{"Llama-3.2-1B",
                                       {.layers = 16,
                                        .hidden = 2048,
                                        .heads = 32,
                                        .key_heads = 8,
                                        .inner = 8192,
                                        .vocabulary = 128'256,
                                        .tied = true},
                                       4.3},
                             published{"of Qwen2.5-7B's sizes",
                                       {.layers = 28,
                                        .hidden = 3584,
                                        .heads = 28,
                                        .key_heads = 4,
                                        .inner = 18'944,
                                        .vocabulary = 152'064},
                                       2.3},
                             published{"of Qwen2.5-0.5B's sizes",
                                       {.layers = 24,
                                        .hidden = 896,
                                        .heads = 14,
                                        .key_heads = 2,
                                        .inner = 4864,
                                        .vocabulary = 151'936,
                                        .tied = true},
                                       9.1}}) {
    std::string const name = m.name;
    CAPTURE(name);
    trace::trace t{.job = {.type = dtype::bf16, .state = model::state_format::split_master}};
    t.parameters = llama_parameters(m.shape, dtype::bf16);
    t.shapes = {{}, {}, {}};
    for (std::uint32_t b = 0; b < m.shape.layers + 2; ++b) {
      t.blocks.push_back(shape_id{b == 0 ? 0U : (b == m.shape.layers + 1 ? 2U : 1U)});
    }
    std::uint64_t layer = 0;
    for (model::parameter const& p : t.parameters) {
      layer += p.uses.front() == block_id{1} ? round_up(elements(p), element_granule) : 0;
    }
    std::uint64_t const embedding = m.shape.vocabulary * m.shape.hidden;
    CHECK(static_cast<double>(embedding) / static_cast<double>(layer) ==
          doctest::Approx(m.ratio).epsilon(0.02));
    auto const sizes = chunk::uniform_grid{}.capacities(t);
    CHECK(*std::ranges::min_element(sizes) == round_up(layer, element_granule));
    CHECK(*std::ranges::max_element(sizes) <= 4 * layer + element_granule);
    for (std::uint64_t const capacity : {sizes.front(), *std::ranges::min_element(sizes)}) {
      chunk::layout const l = chunk::make_layout(t, capacity);
      CHECK(l.chunks[0].payload >= embedding);
      CHECK(l.chunks[0].oversize == (embedding > capacity));
      CHECK(chunk::waste(l) * 2 < m.shape.layers * layer);
    }
  }
}

TEST_CASE("bandwidth measured alone, used together: a plan for several ranks takes the second") {
  trace::trace t = job_of({{{1U << 20U}}, {{1U << 20U}}, {{1U << 20U}}, {{1U << 20U}}});
  for (trace::block_shape& s : t.shapes) {
    s.forward = picoseconds{50'000'000};
    s.backward = picoseconds{100'000'000};
  }
  for (std::uint64_t const by : {2U, 4U, 7U}) {
    CAPTURE(by);
    hw::machine alone = hw::rtx3090x4();
    alone.concurrent.all_ranks = {};
    hw::machine together = alone;
    together.concurrent.all_ranks = {{alone.host_to_device.per_second / by},
                                     {alone.device_to_host.per_second / by}};
    hw::machine slower = alone;
    slower.host_to_device = together.concurrent.all_ranks.host_to_device;
    slower.device_to_host = together.concurrent.all_ranks.device_to_host;
    plan::budget const b{.gpu = {1U << 26U}, .host = {std::uint64_t{1} << 34U}};
    auto const seconds = [&](hw::machine const& m, std::uint64_t world) {
      t.job.world = world;
      auto const p = plan::make(t, m, b, plan::policies<>{}, plan::offload_all());
      REQUIRE(p.has_value());
      return p->predicted.iteration;
    };
    CHECK(seconds(together, 1) == seconds(alone, 1));
    CHECK(seconds(together, 4) == seconds(slower, 4));
    CHECK(seconds(together, 4) > seconds(alone, 4));
  }
}

TEST_CASE("cap not respected: what is taken outside and left in reserve comes off every budget") {
  trace::trace t = job_of({{{1U << 16U}}, {{1U << 16U}}, {{1U << 16U}}, {{1U << 16U}}});
  t.shapes.front().forward = picoseconds{1'000'000};
  t.shapes.front().backward = picoseconds{2'000'000};
  hw::machine const m = hw::rtx3090x4();
  std::uint64_t planned = 0;
  for (std::uint64_t cap = 0; cap < (1U << 22U); cap += (1U << 16U) + 77) {
    for (std::uint64_t const outside : {0U, 300'000U}) {
      for (std::uint64_t const reserve : {0U, 500'001U}) {
        CAPTURE(cap);
        CAPTURE(outside);
        t.outside = bytes{outside};
        auto const p = plan::search(
            t, m, {.gpu = {cap}, .host = {std::uint64_t{1} << 34U}, .reserve = {reserve}});
        if (p) {
          ++planned;
          CHECK(p->predicted.device.peak + outside + reserve <= cap);
        } else {
          CHECK(p.failure().needs_device > cap);
        }
      }
    }
  }
  CHECK(planned > 0);
}

TEST_CASE(
    "automatic placement loses to a fixed one: never, at caps around what each of them needs") {
  trace::trace t = job_of({{{1U << 18U}}, {{1U << 18U}}, {{1U << 18U}}, {{1U << 18U}}}, 1.0F);
  t.shapes.front() = {.name = "block",
                      .forward = picoseconds{40'000'000},
                      .backward = picoseconds{80'000'000},
                      .saved = {1U << 20U}};
  hw::machine const m = hw::rtx3090x4();
  for (plan::fixed_policy const& each : plan::fixed_policies()) {
    std::uint64_t const plenty = std::uint64_t{1} << 40U;
    auto const alone =
        plan::make(t, m, {.gpu = {plenty}, .host = {plenty}}, plan::policies<>{}, each.what);
    REQUIRE(alone.has_value());
    plan::budget const exact{.gpu = {alone->predicted.device.peak},
                             .host = {alone->predicted.host.peak}};
    auto const ours = plan::search(t, m, exact);
    REQUIRE(ours.has_value());
    CHECK(ours->predicted.iteration <= alone->predicted.iteration);
    CHECK(ours->predicted.device.peak <= exact.gpu.value);
  }
}

}  // namespace planner_pitfalls_test
