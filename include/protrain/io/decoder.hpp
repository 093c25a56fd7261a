// SPDX-License-Identifier: Apache-2.0
#pragma once
// Configurations of every family that planning knows. What changes a tensor, an operation or a byte
// is read or refused; what changes values only, as the angles of rotary positions do, is not looked at.

#include "protrain/io/config.hpp"
#include "protrain/io/json.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/gpt2.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace protrain::inline v0::io {

namespace detail {

/// A switch that may be missing.
inline bool flag(json_field const& top, char const* name, bool missing) {
  auto const f = top.find(name);
  return f ? f->boolean() : missing;
}

inline void refuse_switch(json_field const& top, char const* name) {
  if (auto const f = top.find(name); f && f->boolean()) {
    f->fail("is not supported; only false is");
  }
}

/// Newer files name the kind of attention layer by layer.
inline void refuse_mixed_layers(json_field const& top) {
  auto const kinds = top.find("layer_types");
  if (!kinds) {
    return;
  }
  for (json_field const& kind : kinds->items(config_limits::layers)) {
    kind.choice({"full_attention"});
  }
}

/// Heads of queries, of keys and values, and the channels of each (`missing`: hidden / heads).
inline void read_heads(json_field const& top,
                       model::decoder_config& c,
                       std::optional<std::uint64_t> missing) {
  using limit = config_limits;
  json_field const heads = top.at("num_attention_heads");
  c.heads = heads.integer(1, limit::channels);
  auto const keys = top.find("num_key_value_heads");
  c.key_heads = keys ? keys->integer(1, limit::channels) : c.heads;
  if (keys && c.heads % c.key_heads != 0) {
    keys->fail("must divide num_attention_heads, which is " + std::to_string(c.heads));
  }
  auto const width = top.find("head_dim");
  if (!width && !missing && c.hidden % c.heads != 0) {
    heads.fail("must divide hidden_size, which is " + std::to_string(c.hidden) +
               ", unless head_dim is given");
  }
  c.head_channels =
      width ? width->integer(1, limit::channels) : missing.value_or(c.hidden / c.heads);
  if (c.query_width() > limit::inner) {
    (width ? *width : heads)
        .fail("makes num_attention_heads x head_dim " + std::to_string(c.query_width()) +
              "; the most is " + std::to_string(limit::inner));
  }
}

/// LLaMA and those that differ from it in biases, norms of heads and windows.
inline model::decoder_config parse_gated(json_field const& top, model::family type) {
  using limit = config_limits;
  using model::family;
  model::decoder_config c{.type = type};
  c.layers = top.at("num_hidden_layers").integer(1, limit::layers);
  c.hidden = top.at("hidden_size").integer(1, limit::channels);
  c.embedding = c.hidden;
  bool const wide = type == family::qwen3;  // whose heads have 128 channels unless it says so
  read_heads(top, c, wide ? std::optional<std::uint64_t>(128) : std::nullopt);
  c.inner = top.at("intermediate_size").integer(1, limit::inner);
  c.vocabulary = top.at("vocab_size").integer(1, limit::vocabulary);
  c.positions = top.at("max_position_embeddings").integer(1, limit::positions);
  auto const dropout = top.find("attention_dropout");
  c.dropout = dropout ? dropout->number(0, 1) : 0;
  c.tied = flag(top, "tie_word_embeddings", false);
  if (auto const f = top.find("hidden_act")) {
    f->choice({"silu"});
  }
  if (type == family::llama || type == family::qwen3) {
    c.query_bias = c.output_bias = flag(top, "attention_bias", false);
  } else {
    c.query_bias = type == family::qwen2;
  }
  c.mlp_bias = type == family::llama && flag(top, "mlp_bias", false);
  if (type == family::mistral) {
    auto const window = top.find("sliding_window");
    std::uint64_t const unsaid = top.has("sliding_window") ? 0 : 4096;
    c.window = window ? window->integer(1, limit::positions) : unsaid;
  } else {
    refuse_switch(top, "use_sliding_window");
  }
  refuse_mixed_layers(top);
  return c;
}

inline model::decoder_config parse_opt(json_field const& top) {
  using limit = config_limits;
  model::decoder_config c{.type = model::family::opt};
  c.layers = top.at("num_hidden_layers").integer(1, limit::layers);
  c.hidden = top.at("hidden_size").integer(1, limit::channels);
  json_field const heads = top.at("num_attention_heads");
  c.heads = c.key_heads = heads.integer(1, limit::channels);
  if (c.hidden % c.heads != 0) {
    heads.fail("must divide hidden_size, which is " + std::to_string(c.hidden));
  }
  c.head_channels = c.hidden / c.heads;
  c.inner = top.at("ffn_dim").integer(1, limit::inner);
  c.vocabulary = top.at("vocab_size").integer(1, limit::vocabulary);
  c.positions = top.at("max_position_embeddings").integer(1, limit::positions);
  auto const embedding = top.find("word_embed_proj_dim");
  c.embedding = embedding ? embedding->integer(1, limit::channels) : c.hidden;
  auto const dropout = top.find("dropout");
  c.dropout = dropout ? dropout->number(0, 1) : 0.1;
  c.tied = flag(top, "tie_word_embeddings", true);
  c.norm_first = flag(top, "do_layer_norm_before", true);
  c.final_norm = c.norm_first && !flag(top, "_remove_final_layer_norm", false);
  c.norm_weights = flag(top, "layer_norm_elementwise_affine", true);
  c.query_bias = c.output_bias = c.mlp_bias = flag(top, "enable_bias", true);
  c.relu = true;
  if (auto const f = top.find("activation_function")) {
    c.relu = f->choice({"relu", "gelu", "gelu_new"}) == 0;
  }
  return c;
}

/// GPT-2: switches that change values only are not looked at, the largest of its dropouts counts.
inline model::decoder_config parse_gpt2_shape(json_field const& top) {
  model::gpt2_config c = read_gpt2_sizes(top);
  c.dropout = 0;
  for (char const* const name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    auto const p = top.find(name);
    c.dropout = std::max(c.dropout, p ? p->number(0, 1) : 0.1);
  }
  c.tied = flag(top, "tie_word_embeddings", true);
  refuse_switch(top, "add_cross_attention");
  model::decoder_config out = model::decoder_of(c);
  if (auto const f = top.find("activation_function")) {
    out.relu =
        f->choice({"gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu"}) == 4;
  }
  return out;
}

inline model::decoder_config parse_family(json_field const& top) {
  using model::family;
  switch (top.at("model_type").choice({"gpt2", "opt", "llama", "mistral", "qwen2", "qwen3"})) {
    case 0:
      return parse_gpt2_shape(top);
    case 1:
      return parse_opt(top);
    case 2:
      return parse_gated(top, family::llama);
    case 3:
      return parse_gated(top, family::mistral);
    case 4:
      return parse_gated(top, family::qwen2);
    default:
      return parse_gated(top, family::qwen3);
  }
}

}  // namespace detail

/// A configuration of any family. `dropout` replaces the file's.
inline model::decoder_config parse_decoder(json_field const& top,
                                           std::optional<double> dropout = {}) {
  model::decoder_config c = detail::parse_family(top);
  c.dropout = dropout.value_or(c.dropout);
  if (model::parameter_count(c) > config_limits::parameters) {
    top.at(c.type == model::family::gpt2 ? "n_layer" : "num_hidden_layers")
        .fail("makes more than 2^58 parameters, whose bytes overflow; give fewer");
  }
  return c;
}

/// `parse_decoder` of a file.
inline model::decoder_config read_decoder(std::string const& path,
                                          std::optional<double> dropout = {}) {
  json_document const file = read_json(path);
  return parse_decoder(file.top(), dropout);
}

}  // namespace protrain::inline v0::io
