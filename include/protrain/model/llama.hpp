// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shape of a LLaMA as a value, and what follows from it alone: parameters, operations and bytes,
// without a block being there.

#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::model {

/// Defaults are those of Llama-2-7B. Query heads x `head_channels` need not be `hidden`.
struct llama_config {
  std::uint64_t layers = 32;
  std::uint64_t hidden = 4096;
  std::uint64_t heads = 32;
  std::uint64_t key_heads = heads;  ///< key-value heads; divides `heads`
  std::uint64_t head_channels = heads == 0 ? 0 : hidden / heads;  ///< even
  std::uint64_t inner = 11'008;                                   ///< channels of the MLP
  std::uint64_t vocabulary = 32'000;
  std::uint64_t positions = 4096;  ///< longest sequence
  double dropout = 0;              ///< of the attention's probabilities, its only place; below 1
  bool tied = false;               ///< the head projects with the token embedding
  double epsilon = 1e-5;           ///< of the norms
  double rope_theta = 10'000;      ///< base of the rotary positions
  double initializer_range = 0.02;

  constexpr std::uint64_t query_width() const { return checked_mul(heads, head_channels); }
  constexpr std::uint64_t key_width() const { return checked_mul(key_heads, head_channels); }
  bool operator==(llama_config const&) const = default;
};

namespace detail {

constexpr std::uint64_t product(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return checked_mul(checked_mul(a, b), c);
}

/// Elements of the matrices of one layer.
constexpr std::uint64_t llama_layer_weights(llama_config const& c) {
  std::uint64_t const attention = checked_mul(2, checked_add(c.query_width(), c.key_width()));
  return checked_mul(c.hidden, checked_add(attention, checked_mul(3, c.inner)));
}

/// Rows of the parameter table as the blocks declare them.
class llama_table {
 public:
  constexpr explicit llama_table(dtype type) : type_(type) {}

  constexpr void add(std::string_view name, std::vector<std::uint64_t> shape, block_id block) {
    bool const decays = shape.size() > 1;
    parameter p{.name = name, .shape = std::move(shape), .type = type_, .decay = decays};
    p.uses.push_back(block);
    rows_.push_back(std::move(p));
  }
  constexpr void add_layer(llama_config const& c, std::uint64_t layer) {
    auto const block = make_id<block_id>(layer + 1);
    auto const row = [&](std::string_view name, std::vector<std::uint64_t> shape) {
      text full = "model.layers.";
      full += layer;
      full += ".";
      full += name;
      add(full.view(), std::move(shape), block);
    };
    row("input_layernorm.weight", {c.hidden});
    row("self_attn.q_proj.weight", {c.query_width(), c.hidden});
    row("self_attn.k_proj.weight", {c.key_width(), c.hidden});
    row("self_attn.v_proj.weight", {c.key_width(), c.hidden});
    row("self_attn.o_proj.weight", {c.hidden, c.query_width()});
    row("post_attention_layernorm.weight", {c.hidden});
    row("mlp.gate_proj.weight", {c.inner, c.hidden});
    row("mlp.up_proj.weight", {c.inner, c.hidden});
    row("mlp.down_proj.weight", {c.hidden, c.inner});
  }
  constexpr void tie(std::size_t row, block_id block) { rows_[row].uses.push_back(block); }
  constexpr std::vector<parameter> take() && { return std::move(rows_); }

 private:
  dtype type_;
  std::vector<parameter> rows_{};
};

}  // namespace detail

/// The parameter table: named as in the published checkpoints, in order of first use, a tied tensor
/// once. Block 0 is the embedding, `layers` + 1 the head.
constexpr std::vector<parameter> llama_parameters(llama_config const& c, dtype type) {
  detail::llama_table out(type);
  out.add("model.embed_tokens.weight", {c.vocabulary, c.hidden}, block_id{0});
  for (std::uint64_t layer = 0; layer < c.layers; ++layer) {
    out.add_layer(c, layer);
  }
  auto const head = make_id<block_id>(c.layers + 1);
  out.add("model.norm.weight", {c.hidden}, head);
  if (c.tied) {
    out.tie(0, head);
  } else {
    out.add("lm_head.weight", {c.vocabulary, c.hidden}, head);
  }
  return std::move(out).take();
}

/// Elements of all parameters, a tied tensor once.
constexpr std::uint64_t llama_parameter_count(llama_config const& c) {
  std::uint64_t const layer = checked_add(detail::llama_layer_weights(c), checked_mul(2, c.hidden));
  std::uint64_t const tables = detail::product(c.tied ? 1 : 2, c.vocabulary, c.hidden);
  return checked_add(checked_add(tables, c.hidden), checked_mul(c.layers, layer));
}

/// One block for one micro-batch: operations of its forward, and bytes.
struct llama_block_facts {
  std::uint64_t flops = 0;
  std::uint64_t input = 0;   ///< x, also dx
  std::uint64_t output = 0;  ///< y, also dy
  std::uint64_t saved = 0;   ///< what forward leaves, each tensor rounded up to `address_granule`
  bool operator==(llama_block_facts const&) const = default;
};

namespace detail {

constexpr std::uint64_t rows_of(job const& j) { return checked_mul(j.micro_batch, j.sequence); }

/// Bytes of `rows` x `width` values.
constexpr std::uint64_t activation(llama_config const& c, job const& j) {
  return product(rows_of(j), c.hidden, size_of(j.type));
}

/// One fp32 number per row.
constexpr std::uint64_t row_sums(job const& j) {
  return granules(checked_mul(rows_of(j), size_of(dtype::f32)));
}

}  // namespace detail

constexpr llama_block_facts llama_embedding_facts(llama_config const& c, job const& j) {
  return {.flops = checked_mul(detail::rows_of(j), c.hidden), .output = detail::activation(c, j)};
}

/// Attention is eager: the probabilities are kept.
constexpr llama_block_facts llama_layer_facts(llama_config const& c, job const& j) {
  std::uint64_t const rows = detail::rows_of(j);
  std::uint64_t const size = size_of(j.type);
  std::uint64_t const packed = checked_add(c.query_width(), checked_mul(2, c.key_width()));
  std::uint64_t saved = checked_mul(2, detail::row_sums(j));
  auto const keep = [&](std::uint64_t count, std::uint64_t width) {
    std::uint64_t const one = granules(detail::product(rows, width, size));
    saved = checked_add(saved, checked_mul(count, one));
  };
  keep(3, c.hidden);  // both norms and the residual
  keep(1, packed);
  keep(1, checked_mul(c.heads, j.sequence));
  keep(1, c.query_width());
  keep(3, c.inner);  // gate, up, and what enters the last projection
  std::uint64_t const products = detail::product(2, rows, detail::llama_layer_weights(c));
  std::uint64_t const attention =
      detail::product(checked_mul(4, rows), j.sequence, c.query_width());
  return {.flops = checked_add(products, attention),
          .input = detail::activation(c, j),
          .output = detail::activation(c, j),
          .saved = saved};
}

/// The last norm, the projection to the vocabulary, and the loss. Logits are not kept.
constexpr llama_block_facts llama_head_facts(llama_config const& c, job const& j) {
  std::uint64_t const saved =
      checked_add(granules(detail::activation(c, j)), checked_mul(2, detail::row_sums(j)));
  return {.flops = detail::product(checked_mul(2, detail::rows_of(j)), c.hidden, c.vocabulary),
          .input = detail::activation(c, j),
          .saved = saved};
}

}  // namespace protrain::inline v0::model
