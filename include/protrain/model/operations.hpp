// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operators of a decoder's blocks: floating-point operations, bytes moved and bytes held for one
// micro-batch, as a good implementation on a GPU has them. Nothing here is measured.

#include "protrain/core/dtype.hpp"
#include "protrain/core/math.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/llama.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace protrain::inline v0::model {

/// Eager attention writes the probabilities of all pairs of tokens; fused attention keeps them on the
/// chip, skips what lies ahead or outside the window, and makes them again in backward.
enum class attention_kind : std::uint8_t { eager, fused };

/// How the operators are implemented.
struct operator_style {
  attention_kind attention = attention_kind::fused;
  std::uint64_t logit_chunks =
      1;  ///< 1: logits are kept; more: made twice, a chunk of rows at a time
  bool operator==(operator_style const&) const = default;
};

/// Save levels: what a saved tensor costs to make again decides from which on it is dropped.
enum class drop : std::uint8_t {
  cheap = 1,     ///< norms and activations, which need no product
  products = 2,  ///< what products make, other than the attention's output
  never = 3
};

/// One operator. `saved` bytes are dropped from level `from` on, and then made by its forward again;
/// `kept` bytes stay at every level. Each tensor is rounded up to `address_granule`. What backward
/// does for the gradient of weights is by itself: where those are frozen, it is not done.
struct operation {
  std::string_view name{};
  std::array<std::string_view, 3> weights{};  ///< names inside the block, without ".weight"
  std::uint64_t flops = 0;
  std::uint64_t moved = 0;  ///< bytes read and written by forward
  std::uint64_t backward_flops = 0;
  std::uint64_t backward_moved = 0;
  std::uint64_t weight_flops = 0;
  std::uint64_t weight_moved = 0;
  std::uint64_t kept = 0;
  std::uint64_t saved = 0;
  drop from = drop::never;
  std::uint64_t scratch_forward = 0;
  std::uint64_t scratch_backward = 0;
  bool operator==(operation const&) const = default;
};

/// A block for one micro-batch: bytes of x (and dx), of y (and dy), and its operators.
struct block_operations {
  std::string_view name{};
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  bool has_levels = false;
  std::uint64_t scratch_backward = 0;  ///< alive through all of backward, beside each operator's
  std::vector<operation> operators{};
};

namespace detail {

/// Sizes that all operators of a job share.
struct operator_sizes {
  decoder_config const& c;
  job const& j;

  constexpr std::uint64_t rows() const { return checked_mul(j.micro_batch, j.sequence); }
  /// Bytes of a tensor with `width` values a token.
  constexpr std::uint64_t wide(std::uint64_t width) const {
    return granules(product(rows(), width, size_of(j.type)));
  }
  /// Bytes of a tensor of `count` fp32 numbers a token.
  constexpr std::uint64_t sums(std::uint64_t count) const {
    return granules(product(rows(), count, size_of(dtype::f32)));
  }
  constexpr std::uint64_t packed() const {
    return checked_add(c.query_width(), checked_mul(2, c.key_width()));
  }
  /// Bytes of one value for each head and pair of tokens.
  constexpr std::uint64_t all_pairs() const { return wide(checked_mul(c.heads, j.sequence)); }
  /// Pairs of a token with itself or one before it, inside the window, of a micro-batch.
  constexpr std::uint64_t seen_pairs() const {
    std::uint64_t const t = j.sequence;
    std::uint64_t const w = c.window == 0 ? t : std::min(t, c.window);
    std::uint64_t const triangle = checked_mul(w, checked_add(w, 1)) / 2;
    return checked_mul(j.micro_batch, checked_add(triangle, checked_mul(t - w, w)));
  }
  /// Of means and deviations, a tensor each, or of one number a row.
  constexpr std::uint64_t norm_sums() const {
    return checked_mul(has_layer_norm(c.type) ? 2 : 1, sums(1));
  }
};

/// y = x w^T: two products in backward, each as dear as the forward's.
constexpr operation linear(operator_sizes const& s,
                           std::string_view name,
                           std::array<std::string_view, 3> const& weights,
                           std::uint64_t inputs,
                           std::uint64_t outputs) {
  std::uint64_t const values = product(inputs, outputs, size_of(s.j.type));
  std::uint64_t const moved = checked_add(values, checked_add(s.wide(inputs), s.wide(outputs)));
  std::uint64_t const flops = product(checked_mul(2, s.rows()), inputs, outputs);
  return {.name = name,
          .weights = weights,
          .flops = flops,
          .moved = moved,
          .backward_flops = flops,
          .backward_moved = moved,
          .weight_flops = flops,
          .weight_moved = moved};
}

/// Reads `inputs` and writes `outputs` values a token; backward reads both and writes `inputs`.
constexpr operation elementwise(operator_sizes const& s,
                                std::string_view name,
                                std::uint64_t inputs,
                                std::uint64_t outputs) {
  std::uint64_t const moved = checked_add(s.wide(inputs), s.wide(outputs));
  return {.name = name, .moved = moved, .backward_moved = checked_add(moved, s.wide(inputs))};
}

constexpr operation norm(operator_sizes const& s, std::string_view name) {
  operation out = elementwise(s, name, s.c.hidden, s.c.hidden);
  out.kept = s.norm_sums();
  out.saved = s.wide(s.c.hidden);
  out.from = drop::cheap;
  out.scratch_backward = s.wide(s.c.hidden);
  return out;
}

constexpr void add_attention_core(operator_sizes const& s,
                                  attention_kind kind,
                                  std::vector<operation>& out) {
  decoder_config const& c = s.c;
  std::uint64_t const gradients = checked_add(s.wide(c.query_width()), s.wide(s.packed()));
  if (kind == attention_kind::eager) {
    std::uint64_t const flops = product(checked_mul(2, s.rows()), s.j.sequence, c.query_width());
    std::uint64_t const pairs = s.all_pairs();
    // Scores are written, read and written by the softmax, and read by the second product.
    operation const scores{
        .name = "scores",
        .flops = flops,
        .moved = checked_add(checked_mul(3, pairs), s.wide(s.packed())),
        .backward_flops = checked_mul(2, flops),
        .backward_moved = checked_add(checked_mul(5, pairs), 2 * s.wide(s.packed())),
        .saved = pairs,
        .from = drop::products,
        .scratch_backward = checked_add(gradients, pairs)};
    operation const context{.name = "context",
                            .flops = flops,
                            .moved = checked_add(pairs, 2 * s.wide(c.query_width())),
                            .backward_flops = checked_mul(2, flops),
                            .backward_moved = checked_mul(2, pairs),
                            .kept = s.wide(c.query_width()),
                            .scratch_backward = checked_add(gradients, pairs)};
    out.push_back(scores);
    out.push_back(context);
    return;
  }
  std::uint64_t const flops = product(4, s.seen_pairs(), c.query_width());
  std::uint64_t const moved = checked_add(s.wide(s.packed()), s.wide(c.query_width()));
  // Backward is five products where forward is two, and sums dq in fp32.
  std::uint64_t const sums = granules(product(s.rows(), c.query_width(), size_of(dtype::f32)));
  out.push_back({.name = "attention",
                 .flops = flops,
                 .moved = moved,
                 .backward_flops = checked_mul(5, flops) / 2,
                 .backward_moved = checked_add(checked_mul(2, moved), checked_mul(2, sums)),
                 .kept = checked_add(s.wide(c.query_width()), s.sums(c.heads)),
                 .scratch_backward = checked_add(gradients, checked_add(sums, s.sums(c.heads)))});
}

constexpr void add_attention(operator_sizes const& s,
                             attention_kind kind,
                             std::vector<operation>& out) {
  decoder_config const& c = s.c;
  tensor_names const names = names_of(c.type);
  operation qkv = linear(s, "qkv", {names.query, names.key, names.value}, c.hidden, s.packed());
  qkv.saved = s.wide(s.packed());
  qkv.from = drop::products;
  qkv.scratch_backward = checked_add(s.wide(s.packed()), s.wide(c.hidden));
  out.push_back(qkv);
  std::uint64_t const turned = checked_add(c.query_width(), c.key_width());
  if (has_head_norms(c.type)) {  // with the rotation; what enters the norms stays as well
    operation norms = elementwise(s, "head_norms", turned, turned);
    norms.kept = s.sums(checked_add(c.heads, c.key_heads));
    norms.saved = s.wide(turned);
    norms.from = drop::cheap;
    norms.scratch_backward = checked_add(s.wide(s.packed()), s.wide(turned));
    out.push_back(norms);
  } else if (position_rows(c) == 0) {
    operation rotary = elementwise(s, "rotary", turned, turned);
    rotary.from = drop::products;  // in place of what the product made, and made again with it
    rotary.backward_moved = rotary.moved;
    rotary.scratch_backward = s.wide(s.packed());
    out.push_back(rotary);
  }
  add_attention_core(s, kind, out);
  operation project =
      linear(s, "attention_output", {names.attention_output}, c.query_width(), c.hidden);
  project.moved = checked_add(project.moved, s.wide(c.hidden));  // of the residual
  project.kept = s.wide(c.hidden);
  project.scratch_backward = s.wide(c.query_width());
  out.push_back(project);
}

constexpr void add_mlp(operator_sizes const& s, std::vector<operation>& out) {
  decoder_config const& c = s.c;
  tensor_names const names = names_of(c.type);
  std::uint64_t const matrices = has_gate(c.type) ? 2 : 1;
  bool const relu = c.relu;  // its output tells its derivative
  operation up = linear(s,
                        has_gate(c.type) ? "gate_up" : "up",
                        {names.up, names.gate},
                        c.hidden,
                        checked_mul(matrices, c.inner));
  up.saved = relu ? 0 : checked_mul(matrices, s.wide(c.inner));
  up.from = drop::products;
  up.scratch_backward = checked_add(checked_mul(matrices, s.wide(c.inner)), s.wide(c.hidden));
  out.push_back(up);
  operation act = elementwise(s, "activation", checked_mul(matrices, c.inner), c.inner);
  act.saved = s.wide(c.inner);
  act.from = relu ? drop::products : drop::cheap;
  act.scratch_forward = 0;
  act.scratch_backward = checked_mul(matrices + 1, s.wide(c.inner));
  out.push_back(act);
  operation down = linear(s, "down", {names.down}, c.inner, c.hidden);
  down.moved = checked_add(down.moved, s.wide(c.hidden));
  down.scratch_backward = s.wide(c.inner);
  out.push_back(down);
}

}  // namespace detail

/// The embedding of tokens, and of positions where they are learned.
constexpr block_operations embedding_operations(decoder_config const& c, job const& j) {
  detail::operator_sizes const s{.c = c, .j = j};
  detail::tensor_names const names = detail::names_of(c.type);
  operation look = detail::elementwise(s, "embedding", c.embedding, c.hidden);
  look.weights = {names.tokens};
  look.backward_moved = 0;
  look.weight_moved = checked_mul(3, s.wide(c.embedding));  // read and add to rows
  block_operations out{.name = "embedding", .output = s.wide(c.hidden), .operators = {look}};
  if (c.embedding != c.hidden) {
    operation project =
        detail::linear(s, "project_in", {detail::project_in}, c.embedding, c.hidden);
    project.kept = s.wide(c.embedding);
    project.scratch_backward = s.wide(c.embedding);
    out.operators.push_back(project);
  }
  return out;
}

/// One layer. Levels: 1 drops norms and activations, 2 also what products made but the attention's
/// output and the residual after it.
constexpr block_operations layer_operations(decoder_config const& c,
                                            job const& j,
                                            operator_style const& style) {
  detail::operator_sizes const s{.c = c, .j = j};
  block_operations out{.name = "layer",
                       .input = s.wide(c.hidden),
                       .output = s.wide(c.hidden),
                       .has_levels = true,
                       .scratch_backward = s.wide(c.hidden)};
  if (c.norm_first) {
    out.operators.push_back(detail::norm(s, "attention_norm"));
    detail::add_attention(s, style.attention, out.operators);
    out.operators.push_back(detail::norm(s, "mlp_norm"));
    detail::add_mlp(s, out.operators);
    return out;
  }
  detail::add_attention(s, style.attention, out.operators);
  out.operators.push_back(detail::norm(s, "attention_norm"));
  detail::add_mlp(s, out.operators);
  out.operators.back().kept = s.wide(c.hidden);  // what enters the last norm, whose output is y
  operation last = detail::norm(s, "mlp_norm");
  last.saved = 0;
  last.from = drop::never;
  out.operators.push_back(last);
  return out;
}

/// The last norm, the projection to the vocabulary, and the loss.
constexpr block_operations head_operations(decoder_config const& c,
                                           job const& j,
                                           operator_style const& style) {
  detail::operator_sizes const s{.c = c, .j = j};
  detail::tensor_names const names = detail::names_of(c.type);
  block_operations out{
      .name = "head", .input = s.wide(c.hidden), .scratch_backward = s.wide(c.hidden)};
  if (c.final_norm) {
    operation norm = detail::norm(s, "final_norm");
    norm.kept = checked_add(norm.kept, norm.saved);
    norm.saved = 0;
    norm.from = drop::never;
    out.operators.push_back(norm);
  }
  if (c.embedding != c.hidden) {
    operation project =
        detail::linear(s, "project_out", {detail::project_out}, c.hidden, c.embedding);
    project.kept = s.wide(c.embedding);
    project.scratch_backward = s.wide(c.embedding);
    out.operators.push_back(project);
  }
  operation loss = detail::linear(
      s, "logits_loss", {c.tied ? names.tokens : detail::head_weights}, c.embedding, c.vocabulary);
  std::uint64_t const logits = s.wide(c.vocabulary);
  loss.moved = checked_add(loss.moved, logits);  // the loss reads them
  loss.backward_moved = checked_add(loss.backward_moved, checked_mul(2, logits));
  loss.kept = s.sums(1);
  loss.scratch_backward = s.wide(c.embedding);
  if (style.logit_chunks > 1) {
    std::uint64_t const chunks = std::min(style.logit_chunks, s.rows());
    std::uint64_t const rows = ceil_div(s.rows(), chunks);
    std::uint64_t const chunk = granules(detail::product(rows, c.vocabulary, size_of(j.type)));
    // Every chunk reads the weights, and adds to their gradient.
    std::uint64_t const again =
        detail::product(chunks - 1, checked_mul(c.embedding, c.vocabulary), size_of(j.type));
    loss.moved = checked_add(loss.moved, again);
    loss.backward_flops = checked_add(loss.backward_flops, loss.flops);
    loss.backward_moved = checked_add(checked_add(loss.backward_moved, loss.moved), again);
    loss.weight_moved = checked_add(loss.weight_moved, checked_mul(2, again));
    loss.scratch_forward = chunk;
    loss.scratch_backward = checked_add(loss.scratch_backward, chunk);
  } else {
    loss.kept = checked_add(loss.kept, logits);
  }
  out.operators.push_back(loss);
  return out;
}

}  // namespace protrain::inline v0::model
