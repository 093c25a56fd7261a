// SPDX-License-Identifier: Apache-2.0
#pragma once
// Model configurations as Hugging Face writes them (`config.json`). What would change the model and
// isn't supported is refused, never ignored.

#include "protrain/io/json.hpp"
#include "protrain/model/gpt2.hpp"

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

/// `parse_gpt2` of a file.
inline model::gpt2_config read_gpt2(std::string const& path, std::optional<double> dropout = {}) {
  json_document const file = read_json(path);
  return parse_gpt2(file.top(), dropout);
}

}  // namespace protrain::inline v0::io
