// SPDX-License-Identifier: Apache-2.0
#pragma once
// LLaMA as protrain blocks: an embedding, a repeated layer, a head with loss. Parameters are named
// as in the published checkpoints; the arithmetic is in the kernels.

#include "examples/transformer/embedding.hpp"
#include "examples/transformer/llama_block.hpp"
#include "examples/transformer/llama_head.hpp"
#include "examples/transformer/llama_values.hpp"
#include "examples/transformer/operators.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/model/llama.hpp"

#include <array>
#include <cstdint>

namespace transformer {

using protrain::batch_ref;
using protrain::block_builder;
using protrain::parameter_ref;
using protrain::model::llama_config;

/// Rows of the table as they are: positions come in with the layers, and there is no dropout.
template <class T>
class llama_embedding {
 public:
  explicit llama_embedding(llama_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    b.name("embedding");
    table_ = b.parameter("model.embed_tokens.weight", {config_.vocabulary, config_.hidden});
    tokens_ = b.batch("tokens", protrain::dtype::i32, {job.micro_batch, job.sequence});
    b.output({job.micro_batch, job.sequence, config_.hidden});
    b.reads_input(false);
    b.flops(protrain::model::llama_embedding_facts(config_, job).flops);
    shape_ = {.samples = extent(job.micro_batch),
              .tokens = extent(job.sequence),
              .channels = extent(config_.hidden),
              .vocabulary = extent(config_.vocabulary),
              .positions = 0};
  }

  void forward(scope& s, tensor_view, tensor_view y) const {
    T const* const no_positions = nullptr;
    s.run([&] {
      embedding_forward<T>(shape_,
                           s.batch(tokens_).as<std::int32_t const>(),
                           s.value(table_).as<T const>(),
                           no_positions,
                           {},
                           y.as<T>());
    });
  }

  void backward(scope& s, tensor_view, tensor_view dy, tensor_view) const {
    auto const op = s.op("embedding");
    auto const sums = s.scratch(protrain::dtype::f32, {embedding_backward_workspace(shape_)});
    auto const lists = s.scratch(protrain::dtype::i32, {embedding_backward_lists(shape_)});
    T* const no_positions = nullptr;
    op.run([&] {
      embedding_backward<T>(shape_,
                            s.batch(tokens_).as<std::int32_t const>(),
                            dy.as<T const>(),
                            {},
                            s.gradient(table_).as<T>(),
                            no_positions,
                            sums.as<float>(),
                            lists.as<std::int32_t>());
    });
  }

 private:
  llama_config config_;
  embedding_shape shape_{};
  parameter_ref table_;
  batch_ref tokens_;
};

template <class T>
class llama_layer {
 public:
  explicit llama_layer(llama_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    llama_config const& c = config_;
    weights_ = {b.parameter("input_layernorm.weight", {c.hidden}, {.decay = false}),
                b.parameter("self_attn.q_proj.weight", {c.query_width(), c.hidden}),
                b.parameter("self_attn.k_proj.weight", {c.key_width(), c.hidden}),
                b.parameter("self_attn.v_proj.weight", {c.key_width(), c.hidden}),
                b.parameter("self_attn.o_proj.weight", {c.hidden, c.query_width()}),
                b.parameter("post_attention_layernorm.weight", {c.hidden}, {.decay = false}),
                b.parameter("mlp.gate_proj.weight", {c.inner, c.hidden}),
                b.parameter("mlp.up_proj.weight", {c.inner, c.hidden}),
                b.parameter("mlp.down_proj.weight", {c.hidden, c.inner})};
    b.input({job.micro_batch, job.sequence, c.hidden});
    b.output({job.micro_batch, job.sequence, c.hidden});
    b.flops(protrain::model::llama_layer_facts(c, job).flops);
    dropout_ = job.dropout;
    shape_ = {.attention = {extent(job.micro_batch),
                            extent(job.sequence),
                            extent(c.query_width()),
                            extent(c.heads),
                            extent(c.key_heads)},
              .channels = extent(c.hidden),
              .inner = extent(c.inner),
              .epsilon = c.epsilon,
              .theta = c.rope_theta};
    sizes_ = make_llama_block_sizes<T>(shape_);
    describe_levels(b);
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    auto const saved = save_all<T>(s, slots, sizes_.saved, dropped_);
    run_operators(s, sizes_.forward, [&](operators& op) {
      llama_block_forward<T>(
          shape_, x.as<T const>(), weights(s), dropout(s), pointers(saved), y.as<T>(), op);
    });
  }

  void rebuild(scope& s, tensor_view x) const {
    auto const level = s.dropped("qkv") ? llama_block_level::attention : llama_block_level::cheap;
    auto const saved = rebuild_all(s, slots);
    run_operators(s, sizes_.forward, llama_block_rebuilt(level), [&](operators& op) {
      llama_block_rebuild<T>(
          shape_, x.as<T const>(), weights(s), dropout(s), pointers(saved), level, op);
    });
  }

  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    auto const t = scratch_all<T>(s, sizes_.temporary);
    run_operators(s, sizes_.backward, [&](operators& op) {
      llama_block_backward<T>(
          shape_,
          x.as<T const>(),
          weights(s),
          dropout(s),
          pointers(saved_all(s, slots)),
          dy.as<T const>(),
          dx.as<T>(),
          map<llama_block_parameters<T>>([&](auto w) { return s.gradient(w).template as<T>(); }),
          {t[0].template as<T>(),
           t[1].template as<T>(),
           t[2].template as<float>(),
           t[3].template as<T>()},
          op);
    });
  }

 private:
  static constexpr std::array<protrain::block::slot, 11> slots{"norm_1",
                                                               "norm_1_rstd",
                                                               "qkv",
                                                               "probabilities",
                                                               "attention",
                                                               "residual",
                                                               "norm_2",
                                                               "norm_2_rstd",
                                                               "gate",
                                                               "up",
                                                               "swiglu"};

  /// Without the norms and swiglu, which need no product; then without all that the products before
  /// the attention's output and the MLP's first two make again.
  void describe_levels(block_builder& b) {
    llama_config const& c = config_;
    std::uint64_t const rows = b.job().micro_batch * b.job().sequence;
    std::uint64_t const products =
        2 * rows * c.hidden * (c.query_width() + 2 * c.key_width() + 2 * c.inner);
    std::array const levels{
        protrain::level_ref{},
        b.level("cheap", {.flops = 0}),
        b.level("attention", {.flops = products + 2 * rows * b.job().sequence * c.query_width()})};
    for (std::size_t i = 0; i < dropped_.size(); ++i) {
      dropped_[i] = levels[llama_block_dropped[i]];
    }
  }

  static llama_block_saved<T> pointers(std::array<tensor_view, 11> const& a) {
    auto const value = [&](std::size_t i) { return a[i].template as<T>(); };
    auto const sum = [&](std::size_t i) { return a[i].template as<float>(); };
    return {value(0),
            sum(1),
            value(2),
            value(3),
            value(4),
            value(5),
            value(6),
            sum(7),
            value(8),
            value(9),
            value(10)};
  }

  /// An aggregate of one pointer per parameter, in declaration order.
  template <class Pointers, class F>
  Pointers map(F const& f) const {
    auto const& w = weights_;
    return {f(w[0]), f(w[1]), f(w[2]), f(w[3]), f(w[4]), f(w[5]), f(w[6]), f(w[7]), f(w[8])};
  }
  llama_block_parameters<T const> weights(scope const& s) const {
    return map<llama_block_parameters<T const>>(
        [&](auto w) { return s.value(w).template as<T const>(); });
  }
  dropout_key dropout(scope const& s) const { return {s.rng(0), dropout_}; }

  llama_config config_;
  llama_block_shape shape_{};
  llama_block_sizes sizes_{};
  std::array<protrain::level_ref, 11> dropped_{};  // none: kept at every level
  double dropout_ = 0;
  std::array<parameter_ref, 9> weights_{};
};

/// Last norm, projection to the vocabulary and cross entropy. Targets below 0 don't count.
template <class T>
class llama_head {
 public:
  explicit llama_head(llama_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    std::uint64_t const c = config_.hidden;
    b.name("head");
    norm_ = b.parameter("model.norm.weight", {c}, {.decay = false});
    project_ = b.parameter("lm_head.weight",
                           {config_.vocabulary, c},
                           {.tied = config_.tied ? "model.embed_tokens.weight" : ""});
    targets_ = b.batch("targets", protrain::dtype::i32, {job.micro_batch, job.sequence});
    b.input({job.micro_batch, job.sequence, c});
    b.flops(protrain::model::llama_head_facts(config_, job).flops);
    shape_ = {.loss = {.samples = extent(job.micro_batch),
                       .tokens = extent(job.sequence),
                       .channels = extent(c),
                       .vocabulary = extent(config_.vocabulary)},
              .epsilon = config_.epsilon};
    sizes_ = make_llama_head_sizes<T>(shape_);
  }

  void forward(scope& s, tensor_view x, tensor_view) const {
    auto const saved = save_all<T>(s, slots, sizes_.saved);
    auto const losses = s.scratch(protrain::dtype::f32, {s.samples()});
    run_operators(s, sizes_.forward, [&](operators& op) {
      llama_head_forward<T>(shape_,
                            x.as<T const>(),
                            s.batch(targets_).as<std::int32_t const>(),
                            weights(s),
                            pointers(saved),
                            losses.as<float>(),
                            op);
      for (std::uint64_t i = 0; i < s.samples(); ++i) {
        s.loss(i, losses.as<float>()[i]);
      }
    });
  }

  void backward(scope& s, tensor_view x, tensor_view, tensor_view dx) const {
    auto const saved = saved_all(s, slots);
    auto const dnorm = s.scratch(protrain::dtype::f32, {sizes_.temporary.elements});
    run_operators(s, sizes_.backward, [&](operators& op) {
      llama_head_backward<T>(shape_,
                             x.as<T const>(),
                             s.batch(targets_).as<std::int32_t const>(),
                             weights(s),
                             pointers(saved),
                             s.loss_scale(),
                             dx.as<T>(),
                             {s.gradient(norm_).as<T>(), s.gradient(project_).as<T>()},
                             dnorm.as<float>(),
                             op);
    });
  }

 private:
  static constexpr std::array<protrain::block::slot, 3> slots{"norm", "norm_rstd", "log_sums"};

  llama_head_parameters<T const> weights(scope const& s) const {
    return {s.value(norm_).as<T const>(), s.value(project_).as<T const>()};
  }
  static llama_head_saved<T> pointers(std::array<tensor_view, 3> const& a) {
    return {a[0].template as<T>(), a[1].template as<float>(), a[2].template as<float>()};
  }

  llama_config config_;
  llama_head_shape shape_{};
  llama_head_sizes sizes_{};
  parameter_ref norm_, project_;
  batch_ref targets_;
};

/// The model for jobs whose dtype is that of `T` (float or protrain::bfloat16). The job's dropout
/// counts, not the configuration's.
template <class T>
auto make_llama(llama_config const& config) {
  return protrain::stack{
      llama_embedding<T>{config},
      protrain::repeat(
          static_cast<std::uint32_t>(config.layers), llama_layer<T>{config}, "model.layers"),
      llama_head<T>{config}};
}

}  // namespace transformer

/// Its saved tensors are needed at once.
template <class T>
struct protrain::activation::strategy_of<transformer::llama_head<T>> {
  static constexpr protrain::trace::pin value = protrain::trace::pin::keep;
};
/// It saves nothing.
template <class T>
struct protrain::activation::strategy_of<transformer::llama_embedding<T>> {
  static constexpr protrain::trace::pin value = protrain::trace::pin::keep;
};
