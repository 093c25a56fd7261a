// SPDX-License-Identifier: Apache-2.0
#pragma once
// Model configurations as Hugging Face writes them (`config.json`). What would change the model and
// isn't supported is refused, never ignored.

#include "protrain/io/json.hpp"
#include "protrain/model/config.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/llama.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace protrain::inline v0::io {

/// Bounds that keep every size of a model within 64 bits; identifiers of tokens are 32-bit.
struct config_limits {
  static constexpr std::uint64_t layers = std::uint64_t{1} << 16U;
  static constexpr std::uint64_t channels = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t inner = std::uint64_t{1} << 22U;
  static constexpr std::uint64_t vocabulary = (std::uint64_t{1} << 31U) - 1;
  static constexpr std::uint64_t positions = std::uint64_t{1} << 24U;
  static constexpr std::uint64_t parameters = std::uint64_t{1} << 58U;
};

namespace detail {

/// GPT-2 has three dropouts; this library's job has one.
inline double one_dropout(json_field const& top, std::optional<double> instead) {
  std::optional<double> common;
  for (char const* const name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    auto const field = top.find(name);
    double const p = field ? field->number(0, 1) : 0.1;
    if (!instead && common && *common != p) {
      if (field) {
        field->fail(
            "resid_pdrop, embd_pdrop and attn_pdrop must be equal, and are 0.1 when missing; "
            "change the file, or give one dropout for all");
      }
      throw input_error(top.file(),
                        name,
                        "",
                        "is missing, which means 0.1, but the others differ; "
                        "change the file, or give one dropout for all");
    }
    common = common.value_or(p);
  }
  return instead.value_or(common.value_or(0.1));
}

/// Layers, channels, heads, vocabulary and positions of a GPT-2; the rest as by default.
inline model::gpt2_config read_gpt2_sizes(json_field const& top) {
  using limit = config_limits;
  model::gpt2_config c;
  c.layers = top.at("n_layer").integer(1, limit::layers);
  c.hidden = top.at("n_embd").integer(1, limit::channels);
  c.heads = top.at("n_head").integer(1, limit::channels);
  if (c.hidden % c.heads != 0) {
    top.at("n_head").fail("must divide n_embd, which is " + std::to_string(c.hidden));
  }
  auto const inner = top.find("n_inner");
  c.inner = inner ? inner->integer(1, limit::inner) : 4 * c.hidden;
  c.vocabulary = top.at("vocab_size").integer(1, limit::vocabulary);
  auto const older = top.find("n_ctx");
  auto const positions = top.find("n_positions");
  c.positions = (positions || !older ? top.at("n_positions") : *older).integer(1, limit::positions);
  return c;
}

/// Switches of GPT-2 that change the computation: only the published model's setting is built.
inline void refuse_variants(json_field const& top) {
  if (auto const f = top.find("activation_function")) {
    f->choice({"gelu_new"});
  }
  if (auto const f = top.find("scale_attn_weights"); f && !f->boolean()) {
    f->fail("is not supported; only true is");
  }
  for (char const* const name :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    if (auto const f = top.find(name); f && f->boolean()) {
      f->fail("is not supported; only false is");
    }
  }
}

}  // namespace detail

/// The file's dropouts may differ when `dropout` replaces them all.
inline model::gpt2_config parse_gpt2(json_field const& top, std::optional<double> dropout = {}) {
  top.at("model_type").choice({"gpt2"});
  model::gpt2_config c = detail::read_gpt2_sizes(top);
  c.dropout = detail::one_dropout(top, dropout);
  if (auto const f = top.find("layer_norm_epsilon")) {
    c.epsilon = f->number(1e-30, 1);
  }
  if (auto const f = top.find("initializer_range")) {
    c.initializer_range = f->number(0, 1000);
  }
  if (auto const f = top.find("tie_word_embeddings")) {
    c.tied = f->boolean();
  }
  detail::refuse_variants(top);
  return c;
}

namespace detail {

/// Switches of LLaMA that change the computation: only the published models' setting is built.
inline void refuse_llama_variants(json_field const& top) {
  if (auto const f = top.find("hidden_act")) {
    f->choice({"silu"});
  }
  for (char const* const name : {"attention_bias", "mlp_bias"}) {
    if (auto const f = top.find(name); f && f->boolean()) {
      f->fail("is not supported; only false is");
    }
  }
  if (auto const f = top.find("partial_rotary_factor"); f && f->number(0, 1e9) != 1) {
    f->fail("is not supported; only 1 is");
  }
}

/// Positions that are stretched or scaled turn by other angles.
inline void refuse_scaled_positions(json_field const& scaling) {
  for (char const* const name : {"rope_type", "type"}) {
    if (auto const type = scaling.find(name)) {
      if (type->string() == "default") {
        return;
      }
      type->fail("is not supported; only \"default\" is: set " + scaling.path() +
                 " to null to train without it");
    }
  }
  scaling.fail("is not supported; set it to null");
}

/// The base of the angles: on its own, or within the rope_parameters of newer files.
inline double read_rope_theta(json_field const& top) {
  constexpr double most = 1e18;
  double theta = 10'000;
  if (auto const f = top.find("rope_scaling")) {
    refuse_scaled_positions(*f);
  }
  if (auto const f = top.find("rope_parameters")) {
    refuse_scaled_positions(*f);
    if (auto const inside = f->find("rope_theta")) {
      theta = inside->number(1, most);
    }
  }
  if (auto const f = top.find("rope_theta")) {
    theta = f->number(1, most);
  }
  return theta;
}

/// Heads of queries, of keys and values, and the channels of each. `hidden` is known.
inline void read_llama_heads(json_field const& top, model::llama_config& c) {
  using limit = config_limits;
  json_field const heads = top.at("num_attention_heads");
  c.heads = heads.integer(1, limit::channels);
  auto const keys = top.find("num_key_value_heads");
  c.key_heads = keys ? keys->integer(1, limit::channels) : c.heads;
  if (keys && c.heads % c.key_heads != 0) {
    keys->fail("must divide num_attention_heads, which is " + std::to_string(c.heads));
  }
  auto const width = top.find("head_dim");
  if (!width && c.hidden % c.heads != 0) {
    heads.fail("must divide hidden_size, which is " + std::to_string(c.hidden) +
               ", unless head_dim is given");
  }
  c.head_channels = width ? width->integer(1, limit::channels) : c.hidden / c.heads;
  if (c.head_channels % 2 != 0) {
    (width ? *width : heads)
        .fail("makes heads of " + std::to_string(c.head_channels) +
              " channels, and rotary positions turn pairs; give an even head_dim");
  }
  if (c.query_width() > limit::inner) {
    (width ? *width : heads)
        .fail("makes num_attention_heads x head_dim " + std::to_string(c.query_width()) +
              "; the most is " + std::to_string(limit::inner));
  }
}

}  // namespace detail

/// `dropout` replaces the file's attention_dropout.
inline model::llama_config parse_llama(json_field const& top, std::optional<double> dropout = {}) {
  top.at("model_type").choice({"llama"});
  using limit = config_limits;
  model::llama_config c;
  json_field const layers = top.at("num_hidden_layers");
  c.layers = layers.integer(1, limit::layers);
  c.hidden = top.at("hidden_size").integer(1, limit::channels);
  detail::read_llama_heads(top, c);
  c.inner = top.at("intermediate_size").integer(1, limit::inner);
  c.vocabulary = top.at("vocab_size").integer(1, limit::vocabulary);
  c.positions = top.at("max_position_embeddings").integer(1, limit::positions);
  auto const real = [&](char const* name, double missing, double least, double below) {
    auto const f = top.find(name);
    return f ? f->number(least, below) : missing;
  };
  c.dropout = real("attention_dropout", 0, 0, 1);
  c.dropout = dropout.value_or(c.dropout);
  c.epsilon = real("rms_norm_eps", 1e-6, 1e-30, 1);
  c.rope_theta = detail::read_rope_theta(top);
  c.initializer_range = real("initializer_range", 0.02, 0, 1000);
  auto const tied = top.find("tie_word_embeddings");
  c.tied = tied && tied->boolean();
  detail::refuse_llama_variants(top);
  if (model::llama_parameter_count(c) > limit::parameters) {
    layers.fail("makes more than 2^58 parameters, whose bytes overflow; give fewer");
  }
  return c;
}

/// A configuration of whichever type the file says it is.
inline model::config parse_config(json_field const& top, std::optional<double> dropout = {}) {
  if (top.at("model_type").choice({"gpt2", "llama"}) == 0) {
    return parse_gpt2(top, dropout);
  }
  return parse_llama(top, dropout);
}

/// `parse_config` of a file.
inline model::config read_config(std::string const& path, std::optional<double> dropout = {}) {
  json_document const file = read_json(path);
  return parse_config(file.top(), dropout);
}

/// `parse_gpt2` of a file.
inline model::gpt2_config read_gpt2(std::string const& path, std::optional<double> dropout = {}) {
  json_document const file = read_json(path);
  return parse_gpt2(file.top(), dropout);
}

}  // namespace protrain::inline v0::io
