// SPDX-License-Identifier: Apache-2.0
// The blocks of the example models keep the block law: the conformance kit finds nothing.

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/llama.hpp"
#include "test/law/block.hpp"

#include <doctest/doctest.h>

namespace block_law_test {

namespace {

using namespace protrain;

model::job job_of(dtype type) {
  return {.micro_batch = 2,
          .sequence = 5,
          .type = type,
          .state = model::default_state(type),
          .dropout = 0.1F};
}

template <class T>
void check_gpt2(dtype type) {
  model::gpt2_config const c{
      .layers = 1, .hidden = 16, .heads = 2, .inner = 32, .vocabulary = 19, .positions = 5};
  law::keeps_block_law(transformer::gpt2_embedding<T>(c), job_of(type));
  law::keeps_block_law(transformer::gpt2_layer<T>(c), job_of(type));
  law::keeps_block_law(transformer::gpt2_head<T>(c), job_of(type));
}

template <class T>
void check_llama(dtype type) {
  model::llama_config const c{.layers = 1,
                              .hidden = 16,
                              .heads = 4,
                              .key_heads = 2,
                              .inner = 24,
                              .vocabulary = 19,
                              .positions = 5};
  law::keeps_block_law(transformer::llama_embedding<T>(c), job_of(type));
  law::keeps_block_law(transformer::llama_layer<T>(c), job_of(type));
  law::keeps_block_law(transformer::llama_head<T>(c), job_of(type));
}

}  // namespace

TEST_CASE("GPT-2's blocks") {
  check_gpt2<float>(dtype::f32);
  check_gpt2<bfloat16>(dtype::bf16);
}

TEST_CASE("LLaMA's blocks") {
  check_llama<float>(dtype::f32);
  check_llama<bfloat16>(dtype::bf16);
}

}  // namespace block_law_test
