// SPDX-License-Identifier: Apache-2.0
// The blocks of the example models keep the block law: the conformance kit finds nothing.

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/llama.hpp"
#include "test/law/block.hpp"
#include "test/law/rebuilds.hpp"

#include <doctest/doctest.h>

#include <type_traits>

namespace block_law_test {

namespace {

using namespace protrain;

constexpr model::gpt2_config small_gpt2{
    .layers = 1, .hidden = 16, .heads = 2, .inner = 32, .vocabulary = 19, .positions = 5};
constexpr model::llama_config small_llama{.layers = 1,
                                          .hidden = 16,
                                          .heads = 4,
                                          .key_heads = 2,
                                          .inner = 24,
                                          .vocabulary = 19,
                                          .positions = 5};

/// A block template of one model, in type T.
template <template <class> class Block, auto const& Config, class T>
struct of {
  static Block<T> make() { return Block<T>(Config); }
  static model::job job() {
    dtype const type = std::is_same_v<T, float> ? dtype::f32 : dtype::bf16;
    return {.micro_batch = 2,
            .sequence = 5,
            .type = type,
            .state = model::default_state(type),
            .dropout = 0.1F};
  }
};
template <template <class> class Block, class T>
using gpt2 = of<Block, small_gpt2, T>;
template <template <class> class Block, class T>
using llama = of<Block, small_llama, T>;

TEST_CASE_TEMPLATE_INVOKE(law::block_laws,
                          gpt2<transformer::gpt2_embedding, float>,
                          gpt2<transformer::gpt2_layer, float>,
                          gpt2<transformer::gpt2_head, float>,
                          gpt2<transformer::gpt2_embedding, bfloat16>,
                          gpt2<transformer::gpt2_layer, bfloat16>,
                          gpt2<transformer::gpt2_head, bfloat16>);
TEST_CASE_TEMPLATE_INVOKE(law::block_laws,
                          llama<transformer::llama_embedding, float>,
                          llama<transformer::llama_layer, float>,
                          llama<transformer::llama_head, float>,
                          llama<transformer::llama_embedding, bfloat16>,
                          llama<transformer::llama_layer, bfloat16>,
                          llama<transformer::llama_head, bfloat16>);
TEST_CASE_TEMPLATE_INVOKE(law::rebuild_laws,
                          gpt2<transformer::gpt2_layer, float>,
                          llama<transformer::llama_layer, float>);

}  // namespace

}  // namespace block_law_test
