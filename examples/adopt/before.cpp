// SPDX-License-Identifier: Apache-2.0
// A hand-written trainer: loops over layers, and memory that is taken once and kept.

#include "examples/adopt/trainer.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

using namespace adopt;

int main(int count, char** words) {
  if (count > 1 && std::string_view(words[1]) == "--help") {
    std::puts("Trains a small language model on bytes. Argument: steps (10)");
    return 0;
  }
  int const steps = count > 1 ? std::atoi(words[1]) : 10;
  memory all;
  std::uint8_t context[B * K];
  std::uint8_t next[B];
  for (int step = 1; step <= steps; ++step) {
    load_batch(step, context, next);
    all.begin_step();
    embedding_forward(all.values.embedding, context, all.x[0]);
    for (std::size_t l = 0; l < L; ++l) {
      layer_forward(all.values.layers[l], all.x[l], all.h[l], all.x[l + 1]);
    }
    head_forward(all.values.head, all.x[L], next, all.p, all.losses);
    head_backward(all.values.head, all.gradients.head, all.x[L], next, all.p, 1.0F / B, all.dx);
    for (std::size_t l = L; l-- > 0;) {
      std::swap(all.dx, all.dy);
      layer_backward(
          all.values.layers[l], all.gradients.layers[l], all.x[l], all.h[l], all.dy, all.dx);
    }
    embedding_backward(all.gradients.embedding, context, all.dx);
    all.update(3e-3, step);
    float const loss = mean(all.losses);
    std::printf("step %d  loss %a\n", step, static_cast<double>(loss));
  }
  std::printf("memory %zu bytes\n", all.bytes());
  return 0;
}
