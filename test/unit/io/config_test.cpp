// SPDX-License-Identifier: Apache-2.0
// Configurations of GPT-2: what is read, and every way a value can be wrong.

#include "protrain/io/config.hpp"

#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace config_test {

using protrain::io::json_document;
using protrain::io::parse_gpt2;
using protrain_test::contains;
using protrain_test::refused;
using protrain_test::with;

namespace {

// The published gpt2-xl, shortened.
std::string const xl = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1600, "n_head": 25,
  "n_layer": 48, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257})";

protrain::model::gpt2_config parse(std::string const& text) {
  json_document const file("config.json", text);
  return parse_gpt2(file.top());
}

}  // namespace

TEST_CASE("the published gpt2-xl: 25 heads, an inner size by default, tied by default") {
  auto const c = parse(xl);
  CHECK(c.layers == 48);
  CHECK(c.hidden == 1600);
  CHECK(c.heads == 25);
  CHECK(c.inner == 6400);
  CHECK(c.vocabulary == 50257);
  CHECK(c.positions == 1024);
  CHECK(c.dropout == 0.1);
  CHECK(c.tied);
  CHECK(c.epsilon == 1e-5);
  CHECK(c.initializer_range == 0.02);
}

TEST_CASE("what may be left out, or be null") {
  auto const c = parse(R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4,
      "n_inner": null, "n_ctx": 32, "vocab_size": 256, "tie_word_embeddings": false})");
  CHECK(c.inner == 128);
  CHECK(c.positions == 32);
  CHECK(c.dropout == 0.1);
  CHECK_FALSE(c.tied);
  CHECK(parse(with(xl, "\"n_layer\": 48", "\"n_layer\": 48, \"n_inner\": 100")).inner == 100);
  CHECK(parse(with(xl, "\"n_ctx\": 1024", "\"n_ctx\": 7")).positions == 1024);
}

TEST_CASE("integers: each field, each kind of broken value, named in one line") {
  for (std::string const field : {"n_embd", "n_layer", "n_head", "n_positions", "vocab_size"}) {
    std::string const good = "\"" + field + "\": ";
    std::string const digits = std::to_string(
        json_document("x", xl).top().at(field.c_str()).integer(0, ~std::uint64_t{0}));
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
      auto const e = refused([&] { parse(with(xl, good + digits, good + value)); });
      CAPTURE(field);
      CAPTURE(value);
      CHECK(e.file() == "config.json");
      CHECK(e.field() == field);
      CHECK_FALSE(e.value().empty());
      CHECK(contains(e.cure(), "must be an integer from 1 to "));
      CHECK(protrain_test::one_line(e.what()));
      CHECK(contains(e.what(), "config.json: " + field + " is "));
    }
    if (field != "n_positions") {  // n_ctx stands in for it
      auto const missing = refused([&] { parse(with(xl, good + digits, "\"other\": 1")); });
      CHECK(missing.field() == field);
      CHECK(contains(missing.cure(), "is missing"));
    }
  }
}

TEST_CASE("integers: n_ctx stands in for n_positions, and is checked when it does") {
  std::string const older = with(xl, "\"n_positions\": 1024", "\"other\": 1");
  CHECK(parse(older).positions == 1024);
  CHECK(refused([&] { parse(with(older, "\"n_ctx\": 1024", "\"n_ctx\": -5")); }).field() ==
        "n_ctx");
  auto const neither = with(older, "\"n_ctx\": 1024", "\"another\": 1");
  CHECK(refused([&] { parse(neither); }).field() == "n_positions");
}

TEST_CASE("real numbers: range and type") {
  for (std::string const name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    for (std::string const value : {"-0.1", "1", "1.5", "\"0.1\"", "[]"}) {
      auto const e =
          refused([&] { parse(with(xl, "\"" + name + "\": 0.1", "\"" + name + "\": " + value)); });
      CHECK(e.field() == name);
      CHECK(contains(e.cure(), "at least 0 and below 1"));
    }
  }
  CHECK(refused([&] { parse(with(xl, "1e-05", "0")); }).field() == "layer_norm_epsilon");
  CHECK(refused([&] { parse(with(xl, "0.02", "-0.02")); }).field() == "initializer_range");
  CHECK(contains(refused([&] { parse(with(xl, "1e-05", "1e999")); }).what(), "config.json"));
}

TEST_CASE("three dropouts that differ are refused, unless one for all is given") {
  std::string const other = with(xl, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0.2");
  CHECK(refused([&] { parse(other); }).field() == "attn_pdrop");
  json_document const file("config.json", other);
  CHECK(parse_gpt2(file.top(), 0.25).dropout == 0.25);
  std::string const partly = with(xl, "\"embd_pdrop\": 0.1", "\"embd_pdrop\": 0.0");
  CHECK(refused([&] { parse(partly); }).field() == "embd_pdrop");
}

TEST_CASE("other models, other architectures") {
  auto const e = refused([&] { parse(with(xl, "\"gpt2\"", "\"llama\"")); });
  CHECK(e.field() == "model_type");
  CHECK(e.value() == "\"llama\"");
  CHECK(contains(e.cure(), "gpt2"));
  CHECK(refused([&] { parse(with(xl, "\"model_type\": \"gpt2\",", "")); }).field() == "model_type");
  CHECK(refused([&] { parse(with(xl, "gelu_new", "relu")); }).field() == "activation_function");
  CHECK(refused([&] { parse(with(xl, "\"n_head\": 25", "\"n_head\": 24")); }).field() == "n_head");
  CHECK(refused([&] {
          parse(with(xl, "\"n_ctx\": 1024", "\"scale_attn_weights\": false"));
        }).field() == "scale_attn_weights");
  CHECK(refused([&] {
          parse(with(xl, "\"n_ctx\": 1024", "\"add_cross_attention\": true"));
        }).field() == "add_cross_attention");
  CHECK(refused([&] {
          parse(with(xl, "\"n_ctx\": 1024", "\"tie_word_embeddings\": 1"));
        }).field() == "tie_word_embeddings");
}

TEST_CASE("files that are no object, no JSON, or nested without end") {
  for (std::string const text : {"", "[]", "null", "3", "\"gpt2\""}) {
    CAPTURE(text);
    auto const e = refused([&] { parse(text); });
    CHECK(e.file() == "config.json");
    CHECK(protrain_test::one_line(e.what()));
  }
  for (std::string const text : {"{", "{\"n_layer\": }", "n_layer: 4", "{\"a\": 1,}", "\xff\xfe"}) {
    CHECK(contains(refused([&] { parse(text); }).what(), "is not JSON"));
  }
  for (char const open : {'[', '{'}) {
    std::string deep;
    for (int i = 0; i < 100'000; ++i) {
      deep += open == '[' ? "[" : "{\"a\":";
    }
    CHECK(contains(refused([&] { parse(deep); }).what(), "nested deeper than 64 levels"));
    std::string inside = with(xl, "\"n_ctx\": 1024", "\"n_ctx\": " + deep);
    CHECK(contains(refused([&] { parse(inside); }).what(), "nested deeper than 64 levels"));
  }
  CHECK(contains(refused([&] { parse(with(xl, "\"n_ctx\": 1024", "\"n_embd\": 4")); }).what(),
                 "given twice"));
}

TEST_CASE("values from outside can't break the line") {
  auto const e = refused([&] { parse(with(xl, "\"gpt2\"", "\"a\\nb\\u001b[31m\"")); });
  CHECK(protrain_test::one_line(e.what()));
  auto const l =
      refused([&] { parse(with(xl, "\"gpt2\"", "\"" + std::string(9999, 'x') + "\"")); });
  CHECK(std::string(l.what()).size() < 400);
}

TEST_CASE("from disk: missing, a directory, empty, good") {
  protrain_test::scratch_folder const folder;
  std::string const path = folder / "config.json";
  CHECK(contains(refused([&] { protrain::io::read_gpt2(path); }).what(), path));
  CHECK(contains(refused([&] { protrain::io::read_gpt2(folder / ""); }).what(), "directory"));
  protrain::io::write_file(path, "");
  CHECK(contains(refused([&] { protrain::io::read_gpt2(path); }).what(), "not JSON"));
  protrain::io::write_file(path, xl);
  CHECK(protrain::io::read_gpt2(path).layers == 48);
}

}  // namespace config_test
