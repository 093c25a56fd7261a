// SPDX-License-Identifier: Apache-2.0
// Configurations of every family: what is read, what a missing member means, and every way a value
// can be wrong.

#include "protrain/io/decoder.hpp"
#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace decoder_config_test {

using protrain::io::json_document;
using protrain::model::decoder_config;
using protrain::model::family;
using protrain_test::contains;
using protrain_test::refused;
using protrain_test::with;

namespace {

decoder_config parse(std::string const& text, std::optional<double> dropout = {}) {
  json_document const file("config.json", text);
  return protrain::io::parse_decoder(file.top(), dropout);
}

/// What must be there of LLaMA, Mistral and Qwen, and no more.
std::string least(std::string const& type, std::string const& more = "") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 256,
  "max_position_embeddings": 32)" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::string opt(std::string const& more = "") {
  return R"({"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "ffn_dim": 256, "vocab_size": 300, "max_position_embeddings": 32)" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::vector<std::string> const gated{"llama", "mistral", "qwen2", "qwen3"};

struct fault {
  std::string text;
  std::string field;
  std::string cure;
};

void check(std::vector<fault> const& faults) {
  for (fault const& f : faults) {
    CAPTURE(f.text);
    auto const e = refused([&] { parse(f.text); });
    CAPTURE(e.what());
    CHECK(e.file() == "config.json");
    CHECK(e.field() == f.field);
    CHECK(contains(e.cure(), f.cure));
    CHECK(protrain_test::one_line(e.what()));
  }
}

}  // namespace

TEST_CASE("what a missing member means") {
  for (std::string const& type : gated) {
    CAPTURE(type);
    decoder_config const c = parse(least(type));
    CHECK(name_of(c.type) == type);
    CHECK(c.key_heads == 4);
    CHECK(c.head_channels == (type == "qwen3" ? 128 : 16));
    CHECK(c.embedding == 64);
    CHECK(c.window == (type == "mistral" ? 4096 : 0));
    CHECK(c.dropout == 0);
    CHECK_FALSE(c.tied);
    CHECK(c.query_bias == (type == "qwen2"));
    CHECK_FALSE(c.output_bias);
    CHECK_FALSE(c.mlp_bias);
    CHECK(parse(least(type, R"("num_key_value_heads": null, "head_dim": null,
                              "rope_scaling": null)")) == c);
    CHECK(parse(least(type, "\"tie_word_embeddings\": true")).tied);
  }
  decoder_config const o = parse(opt());
  CHECK(o == decoder_config{.type = family::opt,
                            .layers = 2,
                            .hidden = 64,
                            .heads = 4,
                            .inner = 256,
                            .vocabulary = 300,
                            .positions = 32,
                            .dropout = 0.1,
                            .tied = true,
                            .relu = true,
                            .query_bias = true,
                            .output_bias = true,
                            .mlp_bias = true});
}

TEST_CASE("GPT-2, with its own names; an inner size of null is four times hidden") {
  std::string const text = R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 32, "n_head": 4,
      "n_positions": 16, "vocab_size": 99, "n_inner": null, "resid_pdrop": 0.2, "embd_pdrop": 0.2,
      "attn_pdrop": 0.2})";
  decoder_config const c = parse(text);
  CHECK(c == protrain::model::decoder_of(protrain::model::gpt2_config{.layers = 3,
                                                                      .hidden = 32,
                                                                      .heads = 4,
                                                                      .inner = 128,
                                                                      .vocabulary = 99,
                                                                      .positions = 16,
                                                                      .dropout = 0.2}));
  CHECK(c.tied);
  CHECK_FALSE(parse(with(text, "\"n_layer\"", "\"tie_word_embeddings\": false, \"n_layer\"")).tied);
}

TEST_CASE("GPT-2: what changes values only is not looked at, the largest dropout counts") {
  std::string const text = R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 32, "n_head": 4,
      "n_positions": 16, "vocab_size": 99, "resid_pdrop": 0.0, "embd_pdrop": 0.2, "attn_pdrop": 0.1,
      "activation_function": "gelu", "scale_attn_by_inverse_layer_idx": true})";
  CHECK(parse(text).dropout == 0.2);
  CHECK_FALSE(parse(text).relu);
  CHECK(parse(with(text, "\"gelu\"", "\"relu\"")).relu);
  check({{with(text, "\"gelu\"", "\"tanh\""), "activation_function", "must be one of"},
         {with(text, "\"n_head\": 4", "\"n_head\": 5"), "n_head", "must divide n_embd"},
         {with(text, "\"n_layer\": 3", "\"n_layer\": 0"), "n_layer", "an integer from 1"},
         {with(text, "\"n_layer\"", "\"add_cross_attention\": true, \"n_layer\""),
          "add_cross_attention",
          "only false is"}});
}

TEST_CASE("OPT: an activation other than relu") {
  CHECK(parse(opt("\"activation_function\": \"relu\"")).relu);
  CHECK_FALSE(parse(opt("\"activation_function\": \"gelu\"")).relu);
}

TEST_CASE("one dropout may replace the file's") {
  CHECK(parse(opt("\"dropout\": 0.3")).dropout == 0.3);
  CHECK(parse(opt("\"dropout\": 0.3"), 0.5).dropout == 0.5);
  CHECK(parse(least("qwen2", "\"attention_dropout\": 0.25")).dropout == 0.25);
  CHECK(parse(least("qwen2", "\"attention_dropout\": 0.25"), 0).dropout == 0);
}

TEST_CASE("heads: fewer for keys, of a width of their own") {
  for (std::string const& type : gated) {
    CAPTURE(type);
    auto const c = parse(least(type, R"("num_key_value_heads": 2, "head_dim": 24)"));
    CHECK(c.key_heads == 2);
    CHECK(c.query_width() == 96);
    CHECK(c.key_width() == 48);
  }
}

TEST_CASE("biases where the file says so") {
  auto const llama = parse(least("llama", R"("attention_bias": true, "mlp_bias": true)"));
  CHECK(llama.query_bias);
  CHECK(llama.output_bias);
  CHECK(llama.mlp_bias);
  auto const qwen = parse(least("qwen3", "\"attention_bias\": true"));
  CHECK(qwen.query_bias);
  CHECK(qwen.output_bias);
  CHECK_FALSE(qwen.mlp_bias);
  auto const none = parse(opt("\"enable_bias\": false"));
  CHECK_FALSE(none.query_bias);
  CHECK_FALSE(none.mlp_bias);
}

TEST_CASE("windows: Mistral's is read, others' only if it isn't used") {
  CHECK(parse(least("mistral", "\"sliding_window\": 16")).window == 16);
  CHECK(parse(least("mistral", "\"sliding_window\": null")).window == 0);
  CHECK(parse(least("qwen2", R"("sliding_window": 16, "use_sliding_window": false)")).window == 0);
  CHECK(parse(least("qwen3", R"("layer_types": ["full_attention", "full_attention"])")).window ==
        0);
  check({{least("qwen2", "\"use_sliding_window\": true"), "use_sliding_window", "only false is"},
         {least("qwen3", R"("layer_types": ["full_attention", "sliding_attention"])"),
          "layer_types[1]",
          "full_attention"},
         {least("mistral", "\"sliding_window\": 0"), "sliding_window", "an integer from 1"}});
}

TEST_CASE("OPT: narrow embeddings, norms that follow, none at the end, none with weights") {
  auto const c = parse(opt(R"("word_embed_proj_dim": 16, "do_layer_norm_before": false)"));
  CHECK(c.embedding == 16);
  CHECK_FALSE(c.norm_first);
  CHECK_FALSE(c.final_norm);
  CHECK_FALSE(parse(opt("\"_remove_final_layer_norm\": true")).final_norm);
  CHECK_FALSE(parse(opt("\"layer_norm_elementwise_affine\": false")).norm_weights);
  CHECK_FALSE(parse(opt("\"tie_word_embeddings\": false")).tied);
}

TEST_CASE("how positions turn changes no byte: planning takes what training may refuse") {
  CHECK(parse(least("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 32.0})")) ==
        parse(least("llama")));
}

TEST_CASE("broken values: the file, the field, the value and the cure") {
  for (std::string const& type : gated) {
    std::string const good = least(type);
    for (std::string const bad :
         {"0", "-1", "1.5", "1e3", "4611686018427387904", "\"64\"", "true", "[]"}) {
      for (std::string const member : {"hidden_size\": 64",
                                       "num_hidden_layers\": 2",
                                       "num_attention_heads\": 4",
                                       "intermediate_size\": 96",
                                       "vocab_size\": 256",
                                       "max_position_embeddings\": 32"}) {
        std::string const name = member.substr(0, member.find('"'));
        check({{with(good, member, name + "\": " + bad), name, "must be an integer from 1"}});
      }
    }
    check({{with(good, "\"hidden_size\": 64, ", ""), "hidden_size", "is missing"},
           {least(type, "\"num_key_value_heads\": 3"), "num_key_value_heads", "must divide"},
           {least(type, "\"hidden_act\": \"gelu\""), "hidden_act", "silu"},
           {least(type, "\"tie_word_embeddings\": 1"), "tie_word_embeddings", "true or false"},
           {least(type, "\"attention_dropout\": 1"), "attention_dropout", "below 1"},
           {least(type, "\"head_dim\": 1048577"), "head_dim", "must be an integer from 1"},
           {with(least(type, "\"head_dim\": 1000000"),
                 "num_attention_heads\": 4",
                 "num_attention_heads\": 1000"),
            "head_dim",
            "the most is"}});
  }
  check({{with(least("mistral"), "hidden_size\": 64", "hidden_size\": 63"),
          "num_attention_heads",
          "must divide hidden_size"},
         {with(opt(), "hidden_size\": 64", "hidden_size\": 63"),
          "num_attention_heads",
          "must divide hidden_size"},
         {opt("\"activation_function\": \"tanh\""), "activation_function", "relu"},
         {opt("\"word_embed_proj_dim\": 0"), "word_embed_proj_dim", "an integer from 1"},
         {with(opt(), "ffn_dim", "ffn_dims"), "ffn_dim", "is missing"},
         {with(opt(), "\"opt\"", "\"bloom\""), "model_type", "must be one of gpt2, opt, llama"},
         {"{}", "model_type", "is missing"}});
}

TEST_CASE("more parameters than bytes can count are refused, not wrapped") {
  std::string text = with(least("llama"), "hidden_size\": 64", "hidden_size\": 1048576");
  text = with(text, "intermediate_size\": 96", "intermediate_size\": 4194304");
  text = with(text, "num_hidden_layers\": 2", "num_hidden_layers\": 65536");
  check({{text, "num_hidden_layers", "2^58"}});
}

}  // namespace decoder_config_test
