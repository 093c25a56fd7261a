// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2 as protrain blocks: an embedding, a repeated layer, a head with loss. Parameters are named
// as in the published checkpoints; the arithmetic is in the kernels.

#include "examples/transformer/embedding.hpp"
#include "examples/transformer/gpt2_block.hpp"
#include "examples/transformer/gpt2_head.hpp"
#include "examples/transformer/gpt2_values.hpp"
#include "examples/transformer/operators.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/model/gpt2.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace transformer {

using protrain::batch_ref;
using protrain::block_builder;
using protrain::parameter_ref;
using protrain::model::gpt2_config;

template <class T>
class gpt2_embedding {
 public:
  explicit gpt2_embedding(gpt2_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    b.name("embedding");
    wte_ = b.parameter("wte.weight", {config_.vocabulary, config_.hidden});
    wpe_ = b.parameter("wpe.weight", {config_.positions, config_.hidden});
    tokens_ = b.batch("tokens", protrain::dtype::i32, {job.micro_batch, job.sequence});
    b.output({job.micro_batch, job.sequence, config_.hidden});
    b.reads_input(false);
    b.flops(2 * job.micro_batch * job.sequence * config_.hidden);
    dropout_ = job.dropout;
    shape_ = {.samples = extent(job.micro_batch),
              .tokens = extent(job.sequence),
              .channels = extent(config_.hidden),
              .vocabulary = extent(config_.vocabulary),
              .positions = extent(config_.positions)};
  }

  void forward(scope& s, tensor_view, tensor_view y) const {
    s.run([&] {
      embedding_forward<T>(shape_,
                           s.batch(tokens_).as<std::int32_t const>(),
                           s.value(wte_).as<T const>(),
                           s.value(wpe_).as<T const>(),
                           {s.rng(0), dropout_},
                           y.as<T>());
    });
  }

  void backward(scope& s, tensor_view, tensor_view dy, tensor_view) const {
    auto const op = s.op("embedding");
    auto const sums = s.scratch(protrain::dtype::f32, {embedding_backward_workspace(shape_)});
    auto const lists = s.scratch(protrain::dtype::i32, {embedding_backward_lists(shape_)});
    op.run([&] {
      embedding_backward<T>(shape_,
                            s.batch(tokens_).as<std::int32_t const>(),
                            dy.as<T const>(),
                            {s.rng(0), dropout_},
                            s.gradient(wte_).as<T>(),
                            s.gradient(wpe_).as<T>(),
                            sums.as<float>(),
                            lists.as<std::int32_t>());
    });
  }

 private:
  gpt2_config config_;
  embedding_shape shape_{};
  double dropout_ = 0;
  parameter_ref wte_, wpe_;
  batch_ref tokens_;
};

template <class T>
class gpt2_layer {
 public:
  explicit gpt2_layer(gpt2_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    std::uint64_t const c = config_.hidden;
    std::uint64_t const f = config_.inner;
    auto const vector = [&](std::string_view name, std::uint64_t n) {
      return b.parameter(name, {n}, {.decay = false});
    };
    weights_ = {vector("ln_1.weight", c),
                vector("ln_1.bias", c),
                b.parameter("attn.c_attn.weight", {3 * c, c}),
                vector("attn.c_attn.bias", 3 * c),
                b.parameter("attn.c_proj.weight", {c, c}),
                vector("attn.c_proj.bias", c),
                vector("ln_2.weight", c),
                vector("ln_2.bias", c),
                b.parameter("mlp.c_fc.weight", {f, c}),
                vector("mlp.c_fc.bias", f),
                b.parameter("mlp.c_proj.weight", {c, f}),
                vector("mlp.c_proj.bias", c)};
    b.input({job.micro_batch, job.sequence, c});
    b.output({job.micro_batch, job.sequence, c});
    std::uint64_t const rows = job.micro_batch * job.sequence;
    b.flops(2 * rows * c * (4 * c + 2 * f) + 4 * rows * job.sequence * c);
    dropout_ = job.dropout;
    shape_ = {.attention = {extent(job.micro_batch),
                            extent(job.sequence),
                            extent(c),
                            extent(config_.heads)},
              .inner = extent(f),
              .epsilon = config_.epsilon};
    sizes_ = make_gpt2_block_sizes<T>(shape_, dropout_ > 0);
    describe_levels(b, rows);
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    auto const saved = save_all<T>(s, slots, sizes_.saved, dropped_);
    run_operators(s, sizes_.forward, [&](operators& op) {
      gpt2_block_forward<T>(
          shape_, x.as<T const>(), weights(s), dropout(s), pointers(saved), y.as<T>(), op);
    });
  }

  void rebuild(scope& s, tensor_view x) const {
    auto const level = s.dropped("qkv") ? gpt2_block_level::attention : gpt2_block_level::cheap;
    auto const saved = rebuild_all(s, slots);
    run_operators(s, sizes_.forward, gpt2_block_rebuilt(level), [&](operators& op) {
      gpt2_block_rebuild<T>(
          shape_, x.as<T const>(), weights(s), dropout(s), pointers(saved), level, op);
    });
  }

  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    auto const t = scratch_all<T>(s, sizes_.temporary);
    run_operators(s, sizes_.backward, [&](operators& op) {
      gpt2_block_backward<T>(
          shape_,
          x.as<T const>(),
          weights(s),
          dropout(s),
          pointers(saved_all(s, slots)),
          dy.as<T const>(),
          dx.as<T>(),
          map<gpt2_block_parameters<T>>([&](auto w) { return s.gradient(w).template as<T>(); }),
          {t[0].template as<T>(),
           t[1].template as<T>(),
           t[2].template as<T>(),
           t[3].template as<T>()},
          op);
    });
  }

 private:
  static constexpr std::array<protrain::block::slot, 12> slots{"ln_1",
                                                               "ln_1_mean",
                                                               "ln_1_rstd",
                                                               "qkv",
                                                               "probabilities",
                                                               "attention",
                                                               "residual",
                                                               "ln_2",
                                                               "ln_2_mean",
                                                               "ln_2_rstd",
                                                               "fc",
                                                               "gelu"};

  /// Without the norms and gelu, which need no product; then without all that two of the four
  /// products and the attention's first one make again.
  void describe_levels(block_builder& b, std::uint64_t rows) {
    std::uint64_t const c = config_.hidden;
    auto const products = 2 * rows * c * (3 * c + config_.inner);
    protrain::level_ref const cheap = b.level("cheap", {.flops = 0});
    protrain::level_ref const attention =
        b.level("attention", {.flops = products + 2 * rows * b.job().sequence * c});
    for (std::size_t i = 0; i < dropped_.size(); ++i) {
      switch (gpt2_block_dropped[i]) {
        case gpt2_block_level::input:
          dropped_[i] = {};
          break;
        case gpt2_block_level::cheap:
          dropped_[i] = cheap;
          break;
        case gpt2_block_level::attention:
          dropped_[i] = attention;
          break;
      }
    }
  }

  static gpt2_block_saved<T> pointers(std::array<tensor_view, 12> const& a) {
    auto const value = [&](std::size_t i) { return a[i].template as<T>(); };
    auto const sum = [&](std::size_t i) { return a[i].template as<float>(); };
    return {value(0),
            sum(1),
            sum(2),
            value(3),
            value(4),
            value(5),
            value(6),
            value(7),
            sum(8),
            sum(9),
            value(10),
            value(11)};
  }

  /// An aggregate of one pointer per parameter, in declaration order.
  template <class Pointers, class F>
  Pointers map(F const& f) const {
    auto const& w = weights_;
    return {f(w[0]),
            f(w[1]),
            f(w[2]),
            f(w[3]),
            f(w[4]),
            f(w[5]),
            f(w[6]),
            f(w[7]),
            f(w[8]),
            f(w[9]),
            f(w[10]),
            f(w[11])};
  }
  gpt2_block_parameters<T const> weights(scope const& s) const {
    return map<gpt2_block_parameters<T const>>(
        [&](auto w) { return s.value(w).template as<T const>(); });
  }
  gpt2_block_dropout dropout(scope const& s) const {
    return make_gpt2_block_dropout(s.rng(0), dropout_, dropout_);
  }

  gpt2_config config_;
  gpt2_block_shape shape_{};
  gpt2_block_sizes sizes_{};
  std::array<protrain::level_ref, 12> dropped_{};  // none: kept at every level
  double dropout_ = 0;
  std::array<parameter_ref, 12> weights_{};
};

/// Last norm, projection to the vocabulary and cross entropy. Targets below 0 don't count.
template <class T>
class gpt2_head {
 public:
  explicit gpt2_head(gpt2_config const& config) : config_(config) {}

  void describe(block_builder& b) {
    auto const& job = b.job();
    std::uint64_t const c = config_.hidden;
    b.name("head");
    norm_weight_ = b.parameter("ln_f.weight", {c}, {.decay = false});
    norm_bias_ = b.parameter("ln_f.bias", {c}, {.decay = false});
    project_ = b.parameter(
        "lm_head.weight", {config_.vocabulary, c}, {.tied = config_.tied ? "wte.weight" : ""});
    targets_ = b.batch("targets", protrain::dtype::i32, {job.micro_batch, job.sequence});
    b.input({job.micro_batch, job.sequence, c});
    b.flops(2 * job.micro_batch * job.sequence * c * config_.vocabulary);
    shape_ = {.samples = extent(job.micro_batch),
              .tokens = extent(job.sequence),
              .channels = extent(c),
              .vocabulary = extent(config_.vocabulary),
              .epsilon = config_.epsilon};
    sizes_ = make_gpt2_head_sizes<T>(shape_);
  }

  void forward(scope& s, tensor_view x, tensor_view) const {
    auto const saved = save_all<T>(s, slots, sizes_.saved);
    auto const losses = s.scratch(protrain::dtype::f32, {s.samples()});
    run_operators(s, sizes_.forward, [&](operators& op) {
      gpt2_head_forward<T>(shape_,
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
    auto const dln_f = s.scratch(protrain::dtype::f32, {sizes_.temporary.elements});
    run_operators(s, sizes_.backward, [&](operators& op) {
      gpt2_head_backward<T>(shape_,
                            x.as<T const>(),
                            s.batch(targets_).as<std::int32_t const>(),
                            weights(s),
                            pointers(saved),
                            s.loss_scale(),
                            dx.as<T>(),
                            {s.gradient(norm_weight_).as<T>(),
                             s.gradient(norm_bias_).as<T>(),
                             s.gradient(project_).as<T>()},
                            dln_f.as<float>(),
                            op);
    });
  }

 private:
  static constexpr std::array<protrain::block::slot, 4> slots{
      "ln_f", "ln_f_mean", "ln_f_rstd", "log_sums"};

  gpt2_head_parameters<T const> weights(scope const& s) const {
    return {s.value(norm_weight_).as<T const>(),
            s.value(norm_bias_).as<T const>(),
            s.value(project_).as<T const>()};
  }
  static gpt2_head_saved<T> pointers(std::array<tensor_view, 4> const& a) {
    return {a[0].template as<T>(),
            a[1].template as<float>(),
            a[2].template as<float>(),
            a[3].template as<float>()};
  }

  gpt2_config config_;
  gpt2_head_shape shape_{};
  gpt2_head_sizes sizes_{};
  parameter_ref norm_weight_, norm_bias_, project_;
  batch_ref targets_;
};

/// The model for jobs whose dtype is that of `T` (float or protrain::bfloat16). The job's dropout
/// counts, not the configuration's.
template <class T>
auto make_gpt2(gpt2_config const& config) {
  return protrain::stack{
      gpt2_embedding<T>{config},
      protrain::repeat(static_cast<std::uint32_t>(config.layers), gpt2_layer<T>{config}, "h"),
      gpt2_head<T>{config}};
}

}  // namespace transformer

/// Its saved tensors are needed at once.
template <class T>
struct protrain::activation::strategy_of<transformer::gpt2_head<T>> {
  static constexpr protrain::trace::pin value = protrain::trace::pin::keep;
};
/// It saves nothing.
template <class T>
struct protrain::activation::strategy_of<transformer::gpt2_embedding<T>> {
  static constexpr protrain::trace::pin value = protrain::trace::pin::keep;
};
