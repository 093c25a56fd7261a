// SPDX-License-Identifier: Apache-2.0
#pragma once
// Three chunks of one block each, whose closed form fits a sheet of paper.

#include "protrain/cost/paper_job.hpp"

namespace protrain::test {

constexpr cost::paper_job three_chunks() {
  cost::paper_job j{};
  j.chunks = {{.forward = {10},
               .backward = {20},
               .alone = {.gather = {1}, .upload = {7}, .reduce = {2}, .offload = {5}},
               .beside_swap = {.gather = {1}, .upload = {14}, .reduce = {2}, .offload = {10}},
               .gpu_optimizer = {3},
               .cpu_optimizer = {30}},
              {.forward = {10},
               .backward = {20},
               .alone = {.gather = {2}, .upload = {13}, .reduce = {3}, .offload = {9}},
               .beside_swap = {.gather = {2}, .upload = {26}, .reduce = {3}, .offload = {18}},
               .gpu_optimizer = {4},
               .cpu_optimizer = {40}},
              {.forward = {5},
               .backward = {8},
               .alone = {.gather = {3}, .upload = {17}, .reduce = {4}, .offload = {11}},
               .beside_swap = {.gather = {3}, .upload = {34}, .reduce = {4}, .offload = {22}},
               .gpu_optimizer = {5},
               .cpu_optimizer = {50}}};
  j.blocks = {{.chunk = 0, .forward = {10}, .backward = {20}, .swap_out = {10}, .swap_in = {20}},
              {.chunk = 1, .forward = {10}, .backward = {20}},
              {.chunk = 2, .forward = {5}, .backward = {8}}};
  j.buffers = {{1, 3}, {1, 2}, {1, 1}, {0, 0}};
  j.interval = 3;
  j.drain = false;
  return j;
}

}  // namespace protrain::test
