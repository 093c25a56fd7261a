// SPDX-License-Identifier: Apache-2.0
// The second translation unit of the consumer: it includes and uses the same headers.

#include "umbrella.hpp"

namespace {

void ignore(protrain::violation const&) {}

}  // namespace

namespace consumer {

protrain::trace::trace row_of_blocks(std::uint32_t blocks) {
  using namespace protrain;
  trace::trace t{};
  t.shapes = {{.name = "first", .forward = 10_us, .backward = 20_us, .output = 4_KiB},
              {.name = "body",
               .forward = 10_us,
               .backward = 20_us,
               .input = 4_KiB,
               .output = 4_KiB,
               .saved = 16_KiB},
              {.name = "last", .forward = 10_us, .backward = 20_us, .input = 4_KiB}};
  for (std::uint32_t b = 0; b < blocks; ++b) {
    t.blocks.push_back(shape_id{b == 0 ? 0U : (b + 1 == blocks ? 2U : 1U)});
    t.parameters.push_back({.name = "w", .shape = {1024}, .uses = {block_id{b}}});
  }
  return t;
}

protrain::picoseconds predicted(protrain::trace::trace const& t) {
  using namespace protrain;
  auto const p = plan::search(t, hw::host_demo(), {.gpu = 1_MiB, .host = 1_MiB});
  return p ? p->predicted.iteration : picoseconds{};
}

void install_handler() { protrain::set_violation_handler(ignore); }
bool is_installed(protrain::violation_handler h) { return h == ignore; }

}  // namespace consumer
