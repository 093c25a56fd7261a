// SPDX-License-Identifier: Apache-2.0
// Configurations of LLaMA: what is read, every way a value can be wrong, and which type a file is.

#include "protrain/io/config.hpp"
#include "protrain/io/run_facts.hpp"
#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

namespace llama_config_test {

using protrain::io::json_document;
using protrain::model::gpt2_config;
using protrain::model::llama_config;
using protrain_test::contains;
using protrain_test::refused;
using protrain_test::with;

namespace {

// The published Llama-3-8B, shortened.
std::string const good = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})";

// What must be there, and no more.
std::string const least = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 256,
  "max_position_embeddings": 32})";

llama_config parse(std::string const& text) {
  json_document const file("config.json", text);
  return protrain::io::parse_llama(file.top());
}

/// `least` with one more member.
std::string plus(std::string const& member) {
  return with(least, "\"hidden_size\"", member + ", \"hidden_size\"");
}

/// A text, the field that is named, part of the cure.
struct fault {
  std::string text;
  std::string field;
  std::string cure;
};

void check(std::vector<fault> const& faults) {
  for (fault const& f : faults) {
    auto const e = refused([&] { parse(f.text); });
    CAPTURE(e.what());
    CHECK(e.file() == "config.json");
    CHECK(e.field() == f.field);
    CHECK_FALSE(e.value().empty());
    CHECK(contains(e.cure(), f.cure));
    CHECK(protrain_test::one_line(e.what()));
  }
}

}  // namespace

TEST_CASE("the published Llama-3-8B") {
  CHECK(parse(good) == llama_config{.layers = 32,
                                    .hidden = 4096,
                                    .heads = 32,
                                    .key_heads = 8,
                                    .head_channels = 128,
                                    .inner = 14'336,
                                    .vocabulary = 128'256,
                                    .positions = 8192,
                                    .dropout = 0,
                                    .tied = false,
                                    .epsilon = 1e-5,
                                    .rope_theta = 500'000,
                                    .initializer_range = 0.02});
}

TEST_CASE("what may be left out, or be null") {
  auto const c = parse(least);
  CHECK(c.key_heads == 4);
  CHECK(c.head_channels == 16);
  CHECK(c.epsilon == 1e-6);
  CHECK(c.rope_theta == 10'000);
  CHECK(c.dropout == 0);
  CHECK(c.initializer_range == 0.02);
  CHECK_FALSE(c.tied);
  CHECK(parse(plus(R"("num_key_value_heads": null, "head_dim": null)")) == c);
  CHECK(parse(plus("\"tie_word_embeddings\": true")).tied);
}

TEST_CASE("heads of another width than hidden / heads, whatever hidden is") {
  CHECK(parse(plus("\"head_dim\": 32")).head_channels == 32);
  CHECK(parse(plus("\"head_dim\": 32")).query_width() == 128);
  auto const odd = with(plus("\"head_dim\": 8"), "\"hidden_size\": 64", "\"hidden_size\": 63");
  CHECK(parse(odd).hidden == 63);
}

TEST_CASE("one dropout: the file's on attention, unless another is given") {
  std::string const some = with(good, "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.25");
  CHECK(parse(some).dropout == 0.25);
  json_document const file("config.json", some);
  CHECK(protrain::io::parse_llama(file.top(), 0.5).dropout == 0.5);
  CHECK(protrain::io::parse_llama(file.top(), 0).dropout == 0);
}

TEST_CASE("the base of the angles, in old files and new") {
  CHECK(parse(plus("\"rope_theta\": 5e5")).rope_theta == 5e5);
  CHECK(
      parse(plus(R"("rope_parameters": {"rope_type": "default", "rope_theta": 7e4})")).rope_theta ==
      7e4);
  CHECK(parse(plus(R"("rope_scaling": {"type": "default"})")).rope_theta == 1e4);
}

TEST_CASE("integers: each field, each kind of broken value, named in one line") {
  for (std::string const field : {"hidden_size",
                                  "num_hidden_layers",
                                  "num_attention_heads",
                                  "num_key_value_heads",
                                  "intermediate_size",
                                  "vocab_size",
                                  "max_position_embeddings"}) {
    std::string const member = "\"" + field + "\": ";
    std::string const digits = std::to_string(
        json_document("x", good).top().at(field.c_str()).integer(0, ~std::uint64_t{0}));
    for (std::string const value : {"-1",
                                    "0",
                                    "1.5",
                                    "48.0",
                                    "1e3",
                                    "\"48\"",
                                    "[48]",
                                    "{}",
                                    "true",
                                    "4611686018427387904",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "-9223372036854775808"}) {
      CAPTURE(field);
      CAPTURE(value);
      check(
          {{with(good, member + digits, member + value), field, "must be an integer from 1 to "}});
    }
    if (field != "num_key_value_heads") {
      auto const missing = refused([&] { parse(with(good, member + digits, "\"other\": 1")); });
      CHECK(missing.field() == field);
      CHECK(contains(missing.cure(), "is missing"));
    }
  }
  check({{plus("\"head_dim\": -64"), "head_dim", "must be an integer"},
         {plus("\"head_dim\": 16.0"), "head_dim", "must be an integer"},
         {plus("\"head_dim\": 18446744073709551616"), "head_dim", "must be an integer"}});
}

TEST_CASE("heads that don't divide, aren't pairs, or are too many") {
  check({{plus("\"num_key_value_heads\": 3"), "num_key_value_heads", "must divide"},
         {plus("\"num_key_value_heads\": 8"), "num_key_value_heads", "which is 4"},
         {plus("\"head_dim\": 15"), "head_dim", "give an even head_dim"},
         {with(least, "\"hidden_size\": 64", "\"hidden_size\": 12"),
          "num_attention_heads",
          "heads of 3 channels"},
         {with(least, "\"hidden_size\": 64", "\"hidden_size\": 66"),
          "num_attention_heads",
          "must divide hidden_size, which is 66, unless head_dim is given"},
         {with(plus("\"head_dim\": 1048576"), "_heads\": 4", "_heads\": 1048576"),
          "head_dim",
          "the most is 4194304"}});
}

TEST_CASE("a model whose bytes no 64 bits hold") {
  std::string large = with(least, "\"hidden_size\": 64", "\"hidden_size\": 1048576");
  large = with(large, "\"intermediate_size\": 96", "\"intermediate_size\": 4194304");
  CHECK(parse(large).layers == 2);
  check({{with(large, "_layers\": 2", "_layers\": 65536"), "num_hidden_layers", "give fewer"}});
}

TEST_CASE("real numbers: range and type") {
  check({{with(good, "1e-05", "0"), "rms_norm_eps", "must be a number"},
         {with(good, "1e-05", "\"small\""), "rms_norm_eps", "must be a number"},
         {with(good, "500000.0", "0.5"), "rope_theta", "at least 1 "},
         {with(good, "500000.0", "-1"), "rope_theta", "must be a number"},
         {with(good, "0.02", "-0.02"), "initializer_range", "must be a number"},
         {with(good, "dropout\": 0.0", "dropout\": 1"), "attention_dropout", "below 1"},
         {with(good, "dropout\": 0.0", "dropout\": -0.1"), "attention_dropout", "at least 0"}});
}

TEST_CASE("what would change the computation is refused") {
  check({{with(good, "silu", "gelu"), "hidden_act", "silu"},
         {with(good, "bias\": false", "bias\": true"), "attention_bias", "only false is"},
         {plus("\"mlp_bias\": true"), "mlp_bias", "only false is"},
         {plus("\"partial_rotary_factor\": 0.5"), "partial_rotary_factor", "only 1 is"},
         {plus("\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32.0}"),
          "rope_scaling.rope_type",
          "set rope_scaling to null"},
         {plus("\"rope_scaling\": {\"type\": \"linear\"}"), "rope_scaling.type", "not supported"},
         {plus("\"rope_scaling\": {\"factor\": 2}"), "rope_scaling", "set it to null"},
         {plus("\"rope_scaling\": 2.0"), "rope_scaling", "must be an object"},
         {plus("\"rope_parameters\": {\"rope_type\": \"yarn\"}"),
          "rope_parameters.rope_type",
          "only \"default\" is"},
         {plus("\"tie_word_embeddings\": 1"), "tie_word_embeddings", "true or false"},
         {with(good, "\"llama\"", "\"gpt2\""), "model_type", "must be one of llama"}});
}

TEST_CASE("the file says which type it is; others are refused by a list of both") {
  auto const read = [](std::string const& text) {
    json_document const file("config.json", text);
    return protrain::io::parse_config(file.top());
  };
  CHECK(std::get<llama_config>(read(good)).inner == 14'336);
  auto const gpt2 = read(R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4,
                             "n_positions": 32, "vocab_size": 256})");
  CHECK(std::get<gpt2_config>(gpt2).layers == 4);
  CHECK(type_name(gpt2) == "gpt2");
  CHECK(positions_of(gpt2) == 32);
  CHECK(vocabulary_of(gpt2) == 256);
  CHECK(dropout_of(gpt2) == 0.1);
  CHECK(type_name(read(good)) == "llama");
  CHECK(positions_of(read(good)) == 8192);
  CHECK(vocabulary_of(read(good)) == 128'256);
  CHECK(dropout_of(read(good)) == 0);
  for (std::string const other : {"\"mistral\"", "\"opt\"", "7", "null", "[\"llama\"]"}) {
    CAPTURE(other);
    auto const e = refused([&] { read(with(good, "\"llama\"", other)); });
    CHECK(e.field() == "model_type");
    CHECK(e.value() == other);
    CHECK(e.cure() == "must be one of gpt2, llama");
  }
}

TEST_CASE("what is written about a run reads back as the same model") {
  for (std::string const& text : {good, plus(R"("head_dim": 32, "tie_word_embeddings": true)")}) {
    auto const c = parse(text);
    CHECK(parse(protrain::io::to_json(protrain::model::config{c}).dump()) == c);
  }
}

TEST_CASE("from disk") {
  protrain_test::scratch_folder const folder;
  std::string const path = folder / "config.json";
  CHECK(contains(refused([&] { protrain::io::read_config(path); }).what(), path));
  protrain::io::write_file(path, good);
  CHECK(type_name(protrain::io::read_config(path)) == "llama");
  CHECK(dropout_of(protrain::io::read_config(path, 0.25)) == 0.25);
}

}  // namespace llama_config_test
