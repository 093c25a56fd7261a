// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shape of any decoder that has a published configuration, as one value, and its parameter
// table: what planning needs of a model whose blocks nobody has written.

#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/model/parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::model {

/// As `model_type` of a configuration file says it. Decides names, norms, positions and the MLP.
enum class family : std::uint8_t { gpt2, opt, llama, mistral, qwen2, qwen3 };

constexpr std::string_view name_of(family f) noexcept {
  switch (f) {
    case family::gpt2:
      return "gpt2";
    case family::opt:
      return "opt";
    case family::llama:
      return "llama";
    case family::mistral:
      return "mistral";
    case family::qwen2:
      return "qwen2";
    case family::qwen3:
      return "qwen3";
  }
  return "unknown";
}

/// Defaults are those of Llama-2-7B. Query heads x `head_channels` need not be `hidden`.
struct decoder_config {
  family type = family::llama;
  std::uint64_t layers = 32;
  std::uint64_t hidden = 4096;
  std::uint64_t heads = 32;
  std::uint64_t key_heads = heads;  ///< key-value heads; divides `heads`
  std::uint64_t head_channels = heads == 0 ? 0 : hidden / heads;
  std::uint64_t inner = 11'008;  ///< channels of the MLP
  std::uint64_t vocabulary = 32'000;
  std::uint64_t positions = 4096;    ///< longest sequence
  std::uint64_t embedding = hidden;  ///< channels of a token's embedding; others are projected
  std::uint64_t window = 0;  ///< tokens that attention looks back, its own among them; 0 = all
  double dropout = 0;        ///< wherever the model has some; below 1
  bool tied = false;         ///< the head projects with the token embedding
  bool norm_first = true;    ///< each norm comes before its half of a layer
  bool final_norm = true;    ///< a norm before the head
  bool norm_weights = true;  ///< OPT's norms may have none
  bool relu = false;         ///< the activation of an MLP without a gate; else a smooth one
  bool query_bias = false;   ///< of queries, keys and values
  bool output_bias = false;  ///< of the attention's output
  bool mlp_bias = false;

  constexpr std::uint64_t query_width() const { return checked_mul(heads, head_channels); }
  constexpr std::uint64_t key_width() const { return checked_mul(key_heads, head_channels); }
  bool operator==(decoder_config const&) const = default;
};

/// LayerNorm, with a bias; the others have RMSNorm.
constexpr bool has_layer_norm(family f) noexcept { return f == family::gpt2 || f == family::opt; }
/// Three matrices in the MLP, one of them a gate; the others have two.
constexpr bool has_gate(family f) noexcept { return !has_layer_norm(f); }
/// Queries and keys are normalised head by head.
constexpr bool has_head_norms(family f) noexcept { return f == family::qwen3; }
/// One tensor makes queries, keys and values.
constexpr bool has_packed_attention(family f) noexcept { return f == family::gpt2; }

/// Rows of the table of learned positions; 0 where positions are rotations. OPT's first two rows are
/// never read.
constexpr std::uint64_t position_rows(decoder_config const& c) {
  switch (c.type) {
    case family::gpt2:
      return c.positions;
    case family::opt:
      return checked_add(c.positions, 2);
    default:
      return 0;
  }
}

constexpr decoder_config decoder_of(gpt2_config const& c) {
  return {.type = family::gpt2,
          .layers = c.layers,
          .hidden = c.hidden,
          .heads = c.heads,
          .inner = c.inner,
          .vocabulary = c.vocabulary,
          .positions = c.positions,
          .dropout = c.dropout,
          .tied = c.tied,
          .query_bias = true,
          .output_bias = true,
          .mlp_bias = true};
}

constexpr decoder_config decoder_of(llama_config const& c) {
  return {.type = family::llama,
          .layers = c.layers,
          .hidden = c.hidden,
          .heads = c.heads,
          .key_heads = c.key_heads,
          .head_channels = c.head_channels,
          .inner = c.inner,
          .vocabulary = c.vocabulary,
          .positions = c.positions,
          .dropout = c.dropout,
          .tied = c.tied};
}

namespace detail {

/// What a family's checkpoints call their tensors; empty where it has none.
struct tensor_names {
  std::string_view tokens;
  std::string_view positions;
  std::string_view layer;  // before a layer's number
  std::string_view attention_norm;
  std::string_view query;
  std::string_view key;
  std::string_view value;
  std::string_view attention_output;
  std::string_view mlp_norm;
  std::string_view gate;
  std::string_view up;
  std::string_view down;
  std::string_view final_norm;
};

constexpr tensor_names names_of(family f) {
  switch (f) {
    case family::gpt2:
      return {.tokens = "wte",
              .positions = "wpe",
              .layer = "h.",
              .attention_norm = "ln_1",
              .query = "attn.c_attn",
              .key = "",
              .value = "",
              .attention_output = "attn.c_proj",
              .mlp_norm = "ln_2",
              .gate = "",
              .up = "mlp.c_fc",
              .down = "mlp.c_proj",
              .final_norm = "ln_f"};
    case family::opt:
      return {.tokens = "model.decoder.embed_tokens",
              .positions = "model.decoder.embed_positions",
              .layer = "model.decoder.layers.",
              .attention_norm = "self_attn_layer_norm",
              .query = "self_attn.q_proj",
              .key = "self_attn.k_proj",
              .value = "self_attn.v_proj",
              .attention_output = "self_attn.out_proj",
              .mlp_norm = "final_layer_norm",
              .gate = "",
              .up = "fc1",
              .down = "fc2",
              .final_norm = "model.decoder.final_layer_norm"};
    default:
      return {.tokens = "model.embed_tokens",
              .positions = "",
              .layer = "model.layers.",
              .attention_norm = "input_layernorm",
              .query = "self_attn.q_proj",
              .key = "self_attn.k_proj",
              .value = "self_attn.v_proj",
              .attention_output = "self_attn.o_proj",
              .mlp_norm = "post_attention_layernorm",
              .gate = "mlp.gate_proj",
              .up = "mlp.up_proj",
              .down = "mlp.down_proj",
              .final_norm = "model.norm"};
  }
}

inline constexpr std::string_view project_in = "model.decoder.project_in";
inline constexpr std::string_view project_out = "model.decoder.project_out";
inline constexpr std::string_view head_weights = "lm_head";

/// Tells `out(name, suffix, shape)` of each tensor of one layer, in order of first use.
template <class Out>
constexpr void for_layer_tensors(decoder_config const& c, Out const& out) {
  tensor_names const names = names_of(c.type);
  auto const norm = [&](std::string_view name, std::uint64_t channels) {
    if (c.norm_weights) {
      out(name, ".weight", std::vector{channels});
      if (has_layer_norm(c.type)) {
        out(name, ".bias", std::vector{channels});
      }
    }
  };
  auto const linear =
      [&](std::string_view name, std::uint64_t outputs, std::uint64_t inputs, bool bias) {
        out(name, ".weight", std::vector{outputs, inputs});
        if (bias) {
          out(name, ".bias", std::vector{outputs});
        }
      };
  auto const attention = [&] {
    if (has_packed_attention(c.type)) {
      linear(names.query, checked_mul(3, c.hidden), c.hidden, c.query_bias);
    } else {
      linear(names.query, c.query_width(), c.hidden, c.query_bias);
      linear(names.key, c.key_width(), c.hidden, c.query_bias);
      linear(names.value, c.key_width(), c.hidden, c.query_bias);
    }
    if (has_head_norms(c.type)) {
      norm("self_attn.q_norm", c.head_channels);
      norm("self_attn.k_norm", c.head_channels);
    }
    linear(names.attention_output, c.hidden, c.query_width(), c.output_bias);
  };
  auto const mlp = [&] {
    if (has_gate(c.type)) {
      linear(names.gate, c.inner, c.hidden, c.mlp_bias);
    }
    linear(names.up, c.inner, c.hidden, c.mlp_bias);
    linear(names.down, c.hidden, c.inner, c.mlp_bias);
  };
  if (c.norm_first) {
    norm(names.attention_norm, c.hidden);
    attention();
    norm(names.mlp_norm, c.hidden);
    mlp();
  } else {
    attention();
    norm(names.attention_norm, c.hidden);
    mlp();
    norm(names.mlp_norm, c.hidden);
  }
}

/// Rows of a parameter table; matrices decay, vectors don't.
class decoder_table {
 public:
  constexpr explicit decoder_table(dtype type) : type_(type) {}

  constexpr void add(text name, std::vector<std::uint64_t> shape, std::uint64_t block) {
    bool const decays = shape.size() > 1;
    parameter p{.name = std::move(name), .shape = std::move(shape), .type = type_, .decay = decays};
    p.uses.push_back(make_id<block_id>(block));
    rows_.push_back(std::move(p));
  }
  constexpr void tie(std::size_t row, std::uint64_t block) {
    rows_[row].uses.push_back(make_id<block_id>(block));
  }
  constexpr std::vector<parameter> take() && { return std::move(rows_); }

 private:
  dtype type_;
  std::vector<parameter> rows_{};
};

constexpr text joined(std::string_view a, std::string_view b) {
  text out = a;
  out += b;
  return out;
}

}  // namespace detail

/// The parameter table: named as in the published checkpoints, in order of first use, a tied tensor
/// once. Block 0 is the embedding, `layers` + 1 the head.
constexpr std::vector<parameter> decoder_parameters(decoder_config const& c, dtype type) {
  detail::tensor_names const names = detail::names_of(c.type);
  detail::decoder_table out(type);
  std::uint64_t const head = checked_add(c.layers, 1);
  out.add(detail::joined(names.tokens, ".weight"), {c.vocabulary, c.embedding}, 0);
  if (std::uint64_t const rows = position_rows(c); rows > 0) {
    out.add(detail::joined(names.positions, ".weight"), {rows, c.hidden}, 0);
  }
  if (c.embedding != c.hidden) {
    out.add(detail::joined(detail::project_in, ".weight"), {c.hidden, c.embedding}, 0);
  }
  for (std::uint64_t layer = 0; layer < c.layers; ++layer) {
    detail::for_layer_tensors(
        c, [&](std::string_view name, std::string_view suffix, std::vector<std::uint64_t> shape) {
          text full = names.layer;
          full += layer;
          full += ".";
          full += name;
          full += suffix;
          out.add(std::move(full), std::move(shape), layer + 1);
        });
  }
  if (c.final_norm && c.norm_weights) {
    out.add(detail::joined(names.final_norm, ".weight"), {c.hidden}, head);
    if (has_layer_norm(c.type)) {
      out.add(detail::joined(names.final_norm, ".bias"), {c.hidden}, head);
    }
  }
  if (c.embedding != c.hidden) {
    out.add(detail::joined(detail::project_out, ".weight"), {c.embedding, c.hidden}, head);
  }
  if (c.tied) {
    out.tie(0, head);
  } else {
    out.add(detail::joined(detail::head_weights, ".weight"), {c.vocabulary, c.embedding}, head);
  }
  return std::move(out).take();
}

/// Elements of all parameters, a tied tensor once; without a table, whatever the number of layers.
constexpr std::uint64_t parameter_count(decoder_config const& c) {
  std::uint64_t layer = 0;
  detail::for_layer_tensors(
      c, [&](std::string_view, std::string_view, std::vector<std::uint64_t> const& shape) {
        layer = checked_add(layer, elements_of(shape));
      });
  auto const both = [](std::uint64_t n) { return checked_mul(2, n); };
  std::uint64_t const table = checked_mul(c.vocabulary, c.embedding);
  std::uint64_t out = checked_add(c.tied ? table : both(table), checked_mul(c.layers, layer));
  out = checked_add(out, checked_mul(position_rows(c), c.hidden));
  if (c.embedding != c.hidden) {
    out = checked_add(out, both(checked_mul(c.hidden, c.embedding)));
  }
  if (c.final_norm && c.norm_weights) {
    out = checked_add(out, has_layer_norm(c.type) ? both(c.hidden) : c.hidden);
  }
  return out;
}

}  // namespace protrain::inline v0::model
