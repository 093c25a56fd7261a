// SPDX-License-Identifier: Apache-2.0
#pragma once
// What holds for a whole training run, beside its log: who needs it to repeat the run finds all of
// it in one file.

#include "protrain/io/job.hpp"
#include "protrain/io/json.hpp"
#include "protrain/model/config.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/llama.hpp"

#include <cstdint>
#include <string>
#include <variant>

namespace protrain::inline v0::io {

/// The compiler of this translation unit.
inline std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

inline std::string library_version() {
  return std::to_string(PROTRAIN_VERSION_MAJOR) + "." + std::to_string(PROTRAIN_VERSION_MINOR) +
         "." + std::to_string(PROTRAIN_VERSION_PATCH);
}

struct run_facts {
  std::string model{};   ///< as it was named
  std::string device{};  ///< host or serial
  std::string plan{};    ///< the plan string; empty for a plain run
  std::string text{};    ///< where the text is from
  std::uint64_t text_bytes = 0;
  std::uint64_t text_hash = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t steps = 0;
  double learning_rate = 0;
  model::config config{};
  model::job job{};
};

inline json to_json(model::gpt2_config const& c) {
  return {{"model_type", "gpt2"},
          {"n_layer", c.layers},
          {"n_embd", c.hidden},
          {"n_head", c.heads},
          {"n_inner", c.inner},
          {"n_positions", c.positions},
          {"vocab_size", c.vocabulary},
          {"resid_pdrop", c.dropout},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout},
          {"layer_norm_epsilon", c.epsilon},
          {"initializer_range", c.initializer_range},
          {"tie_word_embeddings", c.tied}};
}

inline json to_json(model::llama_config const& c) {
  return {{"model_type", "llama"},
          {"num_hidden_layers", c.layers},
          {"hidden_size", c.hidden},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.key_heads},
          {"head_dim", c.head_channels},
          {"intermediate_size", c.inner},
          {"max_position_embeddings", c.positions},
          {"vocab_size", c.vocabulary},
          {"attention_dropout", c.dropout},
          {"rms_norm_eps", c.epsilon},
          {"rope_theta", c.rope_theta},
          {"initializer_range", c.initializer_range},
          {"tie_word_embeddings", c.tied}};
}

inline json to_json(model::config const& c) {
  return std::visit([](auto const& each) { return to_json(each); }, c);
}

inline json to_json(run_facts const& r) {
  return {{"protrain", "run"},
          {"version", 1},
          {"library_version", library_version()},
          {"compiler", compiler_name()},
          {"model", {{"name", r.model}, {"config", to_json(r.config)}}},
          {"device", r.device},
          {"plan", r.plan.empty() ? json() : json(r.plan)},
          {"fingerprint", hex16(r.fingerprint)},
          {"job", to_json(r.job)},
          {"steps", r.steps},
          {"learning_rate", r.learning_rate},
          {"text", {{"source", r.text}, {"bytes", r.text_bytes}, {"hash", hex16(r.text_hash)}}}};
}

inline void write_run_facts(std::string const& path, run_facts const& r) {
  write_file(path, to_json(r).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace protrain::inline v0::io
