// SPDX-License-Identifier: Apache-2.0
// The same trainer in 1.5 MiB: protrain decides what lies where, the kernels are as they were.

#include "examples/adopt/trainer.hpp"
#include "protrain/protrain.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace adopt;
using namespace protrain;

int main(int count, char** words) {
  if (count > 1 && std::string_view(words[1]) == "--help") {
    std::puts("Trains a small language model on bytes. Argument: steps (10)");
    return 0;
  }
  int const steps = count > 1 ? std::atoi(words[1]) : 10;
  auto const at = [](tensor_view t) { return t.as<float>(); };
  auto const ids = [](scope& s, char const* name) { return s.batch(name).as<std::uint8_t>(); };
  auto const embedding = make_block(
      [](block_builder& b) {
        b.parameter("embedding", {V, E});
        b.batch("context", dtype::u8, {B, K});
        b.output({B, C});
      },
      [=](scope& s, tensor_view, tensor_view y) {
        s.run([&] { embedding_forward(values_as<float*>(s), ids(s, "context"), at(y)); });
      },
      [=](scope& s, tensor_view, tensor_view dy, tensor_view) {
        s.run([&] { embedding_backward(gradients_as<float*>(s), ids(s, "context"), at(dy)); });
      });
  auto const layer = make_block(
      [](block_builder& b) {
        b.parameter("w1", {H, C});
        b.parameter("b1", {H}, {.decay = false});
        b.parameter("w2", {C, H});
        b.parameter("b2", {C}, {.decay = false});
        b.input({B, C});
        b.output({B, C});
      },
      [=](scope& s, tensor_view x, tensor_view y) {
        tensor_view const h = s.save("h", dtype::f32, {B, H});
        s.run([&] { layer_forward(values_as<layer_tensors>(s), at(x), at(h), at(y)); });
      },
      [=](scope& s, tensor_view x, tensor_view dy, tensor_view dx) {
        auto const w = values_as<layer_tensors>(s), d = gradients_as<layer_tensors>(s);
        s.run([&] { layer_backward(w, d, at(x), at(s.saved("h")), at(dy), at(dx)); });
      });
  auto const head = make_block(
      [](block_builder& b) {
        b.parameter("head", {V, C});
        b.batch("next", dtype::u8, {B});
        b.input({B, C});
      },
      [=](scope& s, tensor_view x, tensor_view) {
        auto const p = s.save("p", dtype::f32, {B, V});
        s.run([&] {
          head_forward(values_as<float*>(s), at(x), ids(s, "next"), at(p), at(s.losses()));
        });
      },
      [=](scope& s, tensor_view x, tensor_view, tensor_view dx) {
        auto const w = values_as<float*>(s), d = gradients_as<float*>(s);
        float const scale = s.loss_scale();
        s.run([&] { head_backward(w, d, at(x), ids(s, "next"), at(s.saved("p")), scale, at(dx)); });
      });
  device::host_device device;
  stack model{embedding, repeat(L, layer), head};
  model::job const job{.micro_batch = B, .sequence = 1};
  memory_manager manager{device, model, job, hw::host_demo(), {.gpu = 1536_KiB, .host = 1_GiB}};
  manager.initialise([](auto const& p, auto w) { initialise(p.name.view(), w); });
  std::uint8_t context[B * K];
  std::uint8_t next[B];
  for (int step = 1; step <= steps; ++step) {
    load_batch(step, context, next);
    auto data = runtime::batch{}.add("context", context, B * K).add("next", next, B).targets(B);
    float const loss = manager.step(data, {.learning_rate = 3e-3}).get().loss;
    std::printf("step %d  loss %a\n", step, static_cast<double>(loss));
  }
  std::printf("memory %zu bytes\n", std::size_t{manager.measured(space::device).peak});
  return 0;
}
