// SPDX-License-Identifier: Apache-2.0
// Planning in constant evaluation, within the default limits of g++ and, where there is a toolkit,
// nvcc: one program of eight blocks is compiled, verified and simulated, and the closed forms and the
// parser are evaluated.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/cost/make_placed.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/size.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace {

using namespace protrain;
using namespace protrain::literals;

constexpr std::uint32_t block_count = 8;

/// Eight blocks of one shape, one tensor each; the last one ends in the loss.
constexpr trace::trace eight_blocks() {
  trace::trace t{.job = {.micro_batch = 1, .sequence = 8, .clip = 1.0F}};
  trace::block_shape body{
      .name = "block",
      .forward = 10_us,
      .backward = 20_us,
      .input = 4_KiB,
      .output = 4_KiB,
      .saved = 16_KiB,
      .scratch_forward = 1_KiB,
      .scratch_backward = 2_KiB,
      .levels = {{.name = "cheap", .saved = 8_KiB, .rebuilt = 8_KiB, .rebuild = 2_us},
                 {.name = "deep",
                  .saved = 2_KiB,
                  .rebuilt = 14_KiB,
                  .scratch = 1_KiB,
                  .reads_input = true,
                  .rebuild = 6_us}}};
  trace::block_shape first = body;
  first.input = {};
  trace::block_shape last = body;
  last.output = {};
  t.shapes = {first, body, last};
  for (std::uint32_t b = 0; b < block_count; ++b) {
    t.blocks.push_back(shape_id{b == 0 ? 0U : (b + 1 == block_count ? 2U : 1U)});
    t.parameters.push_back({.name = "w", .shape = {1024}, .uses = {block_id{b}}});
  }
  t.batch = 1_KiB;
  return t;
}

constexpr schedule::knobs mixed(chunk::layout const& l, trace::trace const& t) {
  schedule::knobs k{.buffers = 3, .time = update::timing::after_backward};
  k.persistent = chunk::persist_first{}.persistent(l, 2);
  for (std::uint8_t const stays : k.persistent) {
    k.sites.push_back(update::gpu_if_persistent{}.choose({.persistent = stays != 0}));
  }
  auto made = activation::assign(activation::levels{},
                                 activation::pins_of(t),
                                 activation::depths_of(t),
                                 {.swap = 2, .checkpoint = 4, .interval = 3, .levels = {1, 1}});
  k.strategies = std::move(made.strategies);
  k.levels = std::move(made.levels);
  return k;
}

struct facts {
  bool verified = false;
  picoseconds finish{};
  picoseconds bound{};
  std::uint64_t device = 0;
};

constexpr facts evaluate() {
  trace::trace const t = eight_blocks();
  chunk::layout const l = chunk::make_layout(t, 1024);
  auto const program = schedule::compile(t, l, mixed(l, t));
  auto const durations = sim::durations_of(*program, t, hw::host_demo());
  return {.verified = schedule::verify(*program, t, l).ok,
          .finish = sim::simulate(*program, durations).finish,
          .bound = cost::lower_bound(*program, durations),
          .device = schedule::memory_of(*program, space::device).peak};
}

constexpr facts eight = evaluate();
static_assert(eight.verified);
static_assert(eight.bound <= eight.finish);
// 8 forward and 8 backward passes, 4 recomputations and 2 rebuilds, on one queue.
static_assert(eight.bound >= 288_us);
static_assert(eight.device > 0);

/// The same program where copies, compute and updates slow each other.
constexpr bool slowed() {
  trace::trace const t = eight_blocks();
  chunk::layout const l = chunk::make_layout(t, 1024);
  auto const program = schedule::compile(t, l, mixed(l, t));
  hw::machine m = hw::host_demo();
  m.concurrent = {.both_ways = {{1'500'000'000}, {1'300'000'000}},
                  .beside_compute = {{1'900'000'000}, {1'900'000'000}},
                  .beside_update = {{1'000'000'000}, {1'800'000'000}},
                  .update_beside_copies = {5'000'000'000}};
  sim::pace const pace(m, link::shared{}, t.job.world);
  auto const durations = sim::durations_of(*program, t, pace);
  sim::timeline const times = sim::simulate(*program, durations, pace);
  return pace.contended() && times.finish > eight.finish &&
         times.finish == sim::finish_of(*program, durations, pace);
}
static_assert(slowed());
static_assert(!sim::pace(hw::host_demo(), link::shared{}, 1).contended());

/// The closed forms alone: no program is compiled.
constexpr bool closed_form() {
  trace::trace const t = eight_blocks();
  chunk::layout const l = chunk::make_layout(t, 1024);
  cost::rates const r = cost::rates_of(hw::host_demo(), link::fixed{});
  auto const step = cost::make_step(t, l, update::timing::after_backward, r);
  schedule::knobs const k = mixed(l, t);
  cost::placed const p = cost::make_placed(t, l, *step, k.persistent);
  cost::assigned const a = cost::make_assigned(t, *step, r, k.strategies, 2, 1, k.levels);
  return cost::lower_bound(*step, p, a, k.buffers) <= eight.finish &&
         cost::least_memory(l, *step, p, a, k.buffers, 0).device <= eight.device;
}
static_assert(closed_form());

static_assert(plan::parse_size("1.5GiB")->value == 1'610'612'736);
static_assert(!plan::parse_size("1.5 GiB"));
static_assert(plan::parse("persist=3,swap=2")->persist == 3U);
static_assert(!plan::parse("persist=-1"));
static_assert(plan::print(plan::numbers{.persist = 1, .chunk = 4096}).view() ==
              "persist=1,buffer=0,swap=0,checkpoint=0,interval=1,chunk=4KiB,update=cpu,defer=0,"
              "slots=2:0,time=after_backward");
// nvcc sees a reference here.
using changed = std::remove_cvref_t<decltype(policies<>{}.with(activation::keep_all{}).assignment)>;
static_assert(std::same_as<changed, activation::keep_all>);

}  // namespace
