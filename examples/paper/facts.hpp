// SPDX-License-Identifier: Apache-2.0
#pragma once
// What "ProTrain: Efficient LLM Training via Automatic Memory Management" (MLSys 2026, arXiv
// 2406.08334 v2) prints, and the published configurations of the models that it names.

#include "protrain/model/decoder.hpp"
#include "protrain/model/gpt2.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace paper {

/// Tokens of a sequence in every experiment.
inline constexpr std::uint64_t sequence = 1024;

/// A model by the name that the tables use. Hidden size, blocks and heads are printed, all else is
/// of the published configuration; dropout is not printed, and none.
struct model {
  std::string_view name;
  protrain::model::decoder_config shape;
};

/// The vocabulary and positions of GPT-2.
constexpr protrain::model::decoder_config gpt2(std::uint64_t hidden,
                                               std::uint64_t layers,
                                               std::uint64_t heads) {
  return protrain::model::decoder_of(protrain::model::gpt2_config{
      .layers = layers, .hidden = hidden, .heads = heads, .inner = 4 * hidden, .dropout = 0});
}

constexpr protrain::model::decoder_config mistral_7b() {
  return {.type = protrain::model::family::mistral,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .key_heads = 8,
          .inner = 14'336,
          .window = 4096};
}

constexpr protrain::model::decoder_config llama_13b() {
  return {.layers = 40, .hidden = 5120, .heads = 40, .inner = 13'824};
}

/// Published as CodeLlama-34B.
constexpr protrain::model::decoder_config llama_34b() {
  return {.layers = 48, .hidden = 8192, .heads = 64, .key_heads = 8, .inner = 22'016};
}

constexpr protrain::model::decoder_config opt_30b() {
  return {.type = protrain::model::family::opt,
          .layers = 48,
          .hidden = 7168,
          .heads = 56,
          .inner = 28'672,
          .vocabulary = 50'272,
          .positions = 2048,
          .tied = true,
          .relu = true,
          .query_bias = true,
          .output_bias = true,
          .mlp_bias = true};
}

/// Printed without its shape, which is GPT-3's; 25 heads of 64 channels and a hidden size of 1600 are
/// GPT-2 XL's, and fit the 12 chunks that the 1B model has.
constexpr protrain::model::decoder_config gpt3_175b() { return gpt2(12'288, 96, 96); }
constexpr protrain::model::decoder_config gpt2_1b() { return gpt2(1600, 32, 25); }
constexpr protrain::model::decoder_config gpt2_10b() { return gpt2(4096, 48, 32); }

/// Table 2: the largest GPT-2 that trains, in billions of parameters.
struct largest {
  std::string_view machine;
  double billions;
};
inline constexpr std::array<largest, 4> table2{
    {{"rtx3090x1", 34}, {"rtx3090x4", 37}, {"a100x1", 75}, {"a100x4", 87}}};

/// The shape that table 2's models are taken to grow from, layer by layer: that of the models of 15
/// to 40 billion.
inline constexpr std::uint64_t largest_hidden = 8192;
inline constexpr std::uint64_t largest_heads = 64;

/// Table 3, and two figures of the text: tokens per second over all GPUs.
struct throughput {
  model what;
  std::string_view machine;
  double tokens_per_second;
  std::uint64_t batch = 0;  ///< of all GPUs; 0 where it isn't printed
};
inline constexpr std::array<throughput, 10> table3{
    {{{"Mistral-7B", mistral_7b()}, "a100x4", 11061},
     {{"GPT2-10B", gpt2_10b()}, "a100x4", 8266},
     {{"LLaMA-13B", llama_13b()}, "a100x4", 6471},
     {{"GPT2-20B", gpt2(8192, 24, 64)}, "a100x4", 5044},
     {{"GPT2-30B", gpt2(8192, 36, 64)}, "a100x4", 3431},
     {{"OPT-30B", opt_30b()}, "a100x4", 3266},
     {{"LLaMA-34B", llama_34b()}, "a100x4", 2845},
     {{"GPT2-40B", gpt2(8192, 50, 64)}, "a100x4", 2724},
     {{"GPT2-10B", gpt2_10b()}, "rtx3090x4", 2493},
     {{"GPT-175B", gpt3_175b()}, "a100x4x4nodes", 2219, 256}}};

/// Table 4: what was chosen, on four GPUs. The batch is that of all of them: with E's, kept with
/// eager attention, no more than two sequences fit on one.
struct configuration {
  std::string_view name;
  model what;
  std::string_view machine;
  std::uint64_t batch;
  std::uint64_t chunks;
  std::uint64_t persist;
  std::uint64_t buffer;
  std::uint64_t swap;
  std::uint64_t checkpoint;
};
/// A is one row of the paper, for either machine.
inline constexpr std::array<configuration, 6> table4{
    {{"A", {"GPT2-1B", gpt2_1b()}, "rtx3090x4", 8, 12, 12, 0, 0, 0},
     {"A", {"GPT2-1B", gpt2_1b()}, "a100x4", 8, 12, 12, 0, 0, 0},
     {"B", {"GPT2-1B", gpt2_1b()}, "rtx3090x4", 64, 12, 2, 3, 2, 24},
     {"C", {"GPT2-1B", gpt2_1b()}, "a100x4", 64, 12, 12, 0, 0, 0},
     {"D", {"GPT2-10B", gpt2_10b()}, "rtx3090x4", 8, 49, 3, 46, 0, 48},
     {"E", {"GPT2-10B", gpt2_10b()}, "a100x4", 8, 49, 15, 3, 0, 0}}};

/// The ablation: what a part of the method is worth to GPT2-10B on 4 x RTX 3090, as the time without
/// it over the time with it, from least to most.
struct ablation {
  std::string_view without;
  double least;
  double most;
};
inline constexpr std::array<ablation, 3> ablations{{{"without chunk hierarchy", 1.02, 1.19},
                                                    {"without overlapped CPU update", 1.22, 1.22},
                                                    {"checkpoint everything", 1.04, 1.04}}};
inline constexpr model ablation_model{"GPT2-10B", gpt2_10b()};
inline constexpr std::string_view ablation_machine = "rtx3090x4";

}  // namespace paper
