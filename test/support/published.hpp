// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shapes of published models of every family, with the number of parameters that is published.

#include "protrain/model/decoder.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/llama.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// OPT but for the exceptions among its members.
constexpr model::decoder_config opt(std::uint64_t layers,
                                    std::uint64_t hidden,
                                    std::uint64_t heads) {
  return {.type = model::family::opt,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .inner = 4 * hidden,
          .vocabulary = 50'272,
          .positions = 2048,
          .tied = true,
          .query_bias = true,
          .output_bias = true,
          .mlp_bias = true};
}

constexpr model::decoder_config opt_350m() {
  model::decoder_config c = opt(24, 1024, 16);
  c.embedding = 512;
  c.norm_first = false;
  c.final_norm = false;
  return c;
}

inline constexpr model::decoder_config qwen3_4b{.type = model::family::qwen3,
                                                .layers = 36,
                                                .hidden = 2560,
                                                .heads = 32,
                                                .key_heads = 8,
                                                .head_channels = 128,
                                                .inner = 9728,
                                                .vocabulary = 151'936,
                                                .positions = 40'960,
                                                .tied = true};

inline constexpr model::decoder_config qwen25_72b{.type = model::family::qwen2,
                                                  .layers = 80,
                                                  .hidden = 8192,
                                                  .heads = 64,
                                                  .key_heads = 8,
                                                  .inner = 29'568,
                                                  .vocabulary = 152'064,
                                                  .query_bias = true};

inline constexpr model::decoder_config llama_3_8b{.layers = 32,
                                                  .hidden = 4096,
                                                  .heads = 32,
                                                  .key_heads = 8,
                                                  .inner = 14'336,
                                                  .vocabulary = 128'256};

struct published {
  std::string name;
  model::decoder_config config;
  std::uint64_t parameters;
};

/// All of them.
inline std::vector<published> published_models() {
  return {
      {"GPT-2", decoder_of(model::gpt2_config{}), 124'439'808},
      {"GPT-2 XL",
       decoder_of(model::gpt2_config{.layers = 48, .hidden = 1600, .heads = 25, .inner = 6400}),
       1'557'611'200},
      {"OPT-350M", opt_350m(), 331'196'416},
      {"OPT-1.3B", opt(24, 2048, 32), 1'315'758'080},
      {"OPT-13B", opt(40, 5120, 40), 12'853'473'280},
      {"OPT-30B", opt(48, 7168, 56), 29'974'540'288},
      {"Llama-2-7B", decoder_of(model::llama_config{}), 6'738'415'616},
      {"Llama-2-13B", {.layers = 40, .hidden = 5120, .heads = 40, .inner = 13'824}, 13'015'864'320},
      {"Llama-2-70B",
       {.layers = 80, .hidden = 8192, .heads = 64, .key_heads = 8, .inner = 28'672},
       68'976'648'192},
      {"Llama-3-8B", llama_3_8b, 8'030'261'248},
      {"Llama-3.2-1B",
       {.layers = 16,
        .hidden = 2048,
        .heads = 32,
        .key_heads = 8,
        .inner = 8192,
        .vocabulary = 128'256,
        .tied = true},
       1'235'814'400},
      {"Llama-3-70B",
       {.layers = 80,
        .hidden = 8192,
        .heads = 64,
        .key_heads = 8,
        .inner = 28'672,
        .vocabulary = 128'256},
       70'553'706'496},
      {"Mistral-7B",
       {.type = model::family::mistral, .key_heads = 8, .inner = 14'336, .window = 4096},
       7'241'732'096},
      {"Qwen2.5-0.5B",
       {.type = model::family::qwen2,
        .layers = 24,
        .hidden = 896,
        .heads = 14,
        .key_heads = 2,
        .inner = 4864,
        .vocabulary = 151'936,
        .tied = true,
        .query_bias = true},
       494'032'768},
      {"Qwen2.5-3B",
       {.type = model::family::qwen2,
        .layers = 36,
        .hidden = 2048,
        .heads = 16,
        .key_heads = 2,
        .inner = 11'008,
        .vocabulary = 151'936,
        .tied = true,
        .query_bias = true},
       3'085'938'688},
      {"Qwen2.5-72B", qwen25_72b, 72'706'203'648},
      {"Qwen3-4B", qwen3_4b, 4'022'468'096},
      {"Qwen3-32B",
       {.type = model::family::qwen3,
        .layers = 64,
        .hidden = 5120,
        .heads = 64,
        .key_heads = 8,
        .head_channels = 128,
        .inner = 25'600,
        .vocabulary = 151'936},
       32'762'123'264}};
}

}  // namespace protrain::test
