// SPDX-License-Identifier: Apache-2.0
// The closed form's search in constant evaluation, within the default limits of g++ and, where there
// is a toolkit, nvcc: it finds the layout of the paper's figure 2 by itself.

#include "protrain/plan/closed_form.hpp"

#include "protrain/activation/strategy.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace {

using namespace protrain;
using namespace protrain::literals;
using activation::strategy;

/// Blocks of one shape and one tensor each, which save 24 MiB in 10 us of forward.
constexpr trace::trace row_of_blocks(std::uint32_t blocks) {
  trace::trace t{.job = {.micro_batch = 1, .sequence = 8}};
  trace::block_shape body{.name = "block",
                          .forward = 10_us,
                          .backward = 20_us,
                          .input = 4_KiB,
                          .output = 4_KiB,
                          .saved = 24_MiB,
                          .scratch_forward = 1_KiB,
                          .scratch_backward = 2_KiB};
  trace::block_shape first = body;
  first.input = {};
  trace::block_shape last = body;
  last.output = {};
  t.shapes = {first, body, last};
  for (std::uint32_t b = 0; b < blocks; ++b) {
    t.blocks.push_back(shape_id{b == 0 ? 0U : (b + 1 == blocks ? 2U : 1U)});
    t.parameters.push_back({.name = "w", .shape = {1024}, .uses = {block_id{b}}});
  }
  t.batch = 1_KiB;
  return t;
}

/// A terabyte per second on each link: 24 MiB take 25.2 us to copy out, hence an interval of three
/// blocks.
constexpr hw::machine terabyte_links() {
  return {.host_to_device = {1'000'000'000'000},
          .device_to_host = {1'000'000'000'000},
          .device_bandwidth = {10'000'000'000'000},
          .host_bandwidth = {1'000'000'000'000}};
}

/// The closed form of that row, with a chunk for each block.
constexpr cost::paper_job row(std::uint32_t blocks) {
  trace::trace const t = row_of_blocks(blocks);
  return *cost::make_paper_job(t,
                               chunk::make_layout(t, 1024),
                               terabyte_links(),
                               update::timing::during_backward,
                               link::derated{});
}

constexpr bool assigned(plan::closed_form const& found, std::initializer_list<strategy> expected) {
  return std::equal(
      found.strategies.begin(), found.strategies.end(), expected.begin(), expected.end());
}

constexpr strategy K = strategy::keep;
constexpr strategy C = strategy::checkpoint;
constexpr strategy S = strategy::swap;

/// The paper's figure 2: of 8 blocks, counted from 1, swap {1, 4}, checkpoint {2, 3, 5, 6}, keep
/// {7, 8}. The copy of block 7 would not be out when forward ends, and 64 MiB hold the activations
/// of two blocks, not of three: 2 * 24 MiB * 1.1 = 52.8 MiB, 3 * 24 MiB * 1.1 = 79.2 MiB.
constexpr bool figure_2() {
  cost::paper_job const j = row(8);
  auto const found = plan::search_closed_form(j, 64_MiB);
  return j.interval == 3 && found->at.swap == 2 && found->at.checkpoint == 4 &&
         assigned(*found, {S, C, C, S, C, C, K, K}) && found->peak < 64_MiB;
}
static_assert(figure_2());

/// Another 24 MiB keep another block, and with 24 MiB less one is checkpointed more. With room for
/// all, swapping costs nothing here, and of equal times the least memory wins.
constexpr bool more_and_less_memory() {
  cost::paper_job const j = row(8);
  return assigned(*plan::search_closed_form(j, 90_MiB), {S, C, C, S, C, K, K, K}) &&
         assigned(*plan::search_closed_form(j, 38_MiB), {S, C, C, S, C, C, C, K}) &&
         assigned(*plan::search_closed_form(j, 300_MiB), {S, K, K, S, K, K, K, K});
}
static_assert(more_and_less_memory());

/// Not one block's activations.
constexpr bool too_little() {
  auto const none = plan::search_closed_form(row(8), 20_MiB);
  return !none && none.failure().code == errc::no_device_memory && none.failure().number > 0;
}
static_assert(too_little());

static_assert(plan::search_closed_form(row(12), 64_MiB)->at.swap == 3);

}  // namespace
