// SPDX-License-Identifier: Apache-2.0
// The dump of who holds which bytes, as text.

#include "protrain/report/memory_dump.hpp"

#include "protrain/schedule/holders.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace memory_dump_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders

namespace {

using schedule::access;
using schedule::opcode;
using schedule::role;

trace::trace facts() {
  trace::trace t;
  t.shapes = {
      {.name = "h", .operators = {{.name = "attention", .scratch_peak = {200}}, {.name = "norm"}}}};
  t.blocks = {shape_id{0}, shape_id{0}};
  return t;
}

/// Two forwards: values of chunk 3 stay, each saves, the second has scratch.
schedule::program two_forwards() {
  schedule::program p;
  p.allocations = {
      {.what = category::parameters, .bytes = 1000, .end = 2, .carried = true, .chunk = {3}},
      {.what = category::activations, .offset = 1024, .bytes = 512, .end = 2, .block = {0}},
      {.what = category::activations,
       .offset = 1536,
       .bytes = 512,
       .begin = 1,
       .end = 2,
       .block = {1},
       .micro_batch = 1},
      {.what = category::scratch,
       .offset = 2304,
       .bytes = 200,
       .begin = 1,
       .end = 2,
       .block = {1},
       .micro_batch = 1}};
  p.operands = {{.what = role::value, .allocation = {0}, .bytes = 1000, .chunk = {3}},
                {.what = role::saved, .mode = access::write, .allocation = {1}, .bytes = 512},
                {.what = role::saved, .mode = access::write, .allocation = {2}, .bytes = 512},
                {.what = role::scratch, .mode = access::write, .allocation = {3}, .bytes = 200}};
  p.instructions = {{.op = opcode::forward, .block = {0}, .operand_count = 2},
                    {.op = opcode::forward,
                     .micro_batch = 1,
                     .block = {1},
                     .first_operand = 2,
                     .operand_count = 2}};
  return p;
}

}  // namespace

TEST_CASE("every group, then the largest") {
  std::vector<schedule::program> const all{two_forwards()};
  CHECK(
      report::memory_dump(all, facts(), space::device, 3) ==
      "device memory: 2560 bytes at instruction 1 of step, forward of block 1 (h), micro-batch 1\n"
      "  by category\n"
      "              1000  parameters\n"
      "              1024  activations\n"
      "               200  scratch\n"
      "                80  padding\n"
      "               256  fragmentation\n"
      "  by block\n"
      "               512  block 0 (h)\n"
      "               712  block 1 (h)\n"
      "              1000  of no block\n"
      "  by chunk\n"
      "              1000  chunk 3\n"
      "              1224  of no chunk\n"
      "  by micro-batch\n"
      "               512  micro-batch 0\n"
      "               712  micro-batch 1\n"
      "              1000  of no micro-batch\n"
      "  scratch of block 1 (h) by operator\n"
      "               200  at most, operator attention\n"
      "  largest holders\n"
      "              1000  parameters        values of chunk 3, carried from step to step\n"
      "               512  activations       saved tensors of block 0 (h), micro-batch 0, since "
      "instruction 0 (forward)\n"
      "               512  activations       saved tensors of block 1 (h), micro-batch 1, since "
      "instruction 1 (forward)\n"
      "               200  1 smaller ones\n");
}

TEST_CASE("a space that holds nothing") {
  std::string const text =
      report::memory_dump(schedule::holders(two_forwards(), space::host, 0), facts());
  CHECK(text.find("host memory: 0 bytes at instruction 0 of step") == 0);
}

}  // namespace memory_dump_test
