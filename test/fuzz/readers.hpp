// SPDX-License-Identifier: Apache-2.0
#pragma once
// What reads files from outside, each given any bytes: it takes them or throws an input_error, and
// what it took can be used. Anything else (another exception, an abort, a hang) is a bug.

#include "protrain/core/dtype.hpp"
#include "protrain/io/config.hpp"
#include "protrain/io/decoder.hpp"
#include "protrain/io/json.hpp"
#include "protrain/io/machine.hpp"
#include "protrain/io/plan.hpp"
#include "protrain/io/trace.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <cstdlib>
#include <string_view>

namespace protrain::test {

/// Ends the program, as a crash would: a fuzzer sees it in every build.
inline void insist(bool holds) {
  if (!holds) {
    std::abort();
  }
}

inline void read_config_bytes(std::string_view bytes) {
  io::json_document const file("input", bytes);
  model::decoder_config const c = io::parse_decoder(file.top());
  insist(model::parameter_count(c) <= io::config_limits::parameters);
  if (c.layers <= 64) {
    insist(!model::decoder_parameters(c, dtype::bf16).empty());
  }
  (void)io::parse_config(file.top());
}

inline void read_machine_bytes(std::string_view bytes) {
  io::json_document const file("input", bytes);
  hw::machine const m = io::parse_machine(file.top());
  io::json_document const again("again", io::to_json(m).dump());
  insist(io::parse_machine(again.top()) == m);
  insist(hw::share_of_rank(m, m.host_bandwidth, hw::local_ranks(m, 1U << 16U)).per_second > 0);
}

inline void read_trace_bytes(std::string_view bytes) {
  io::json_document const file("input", bytes);
  trace::trace const t = io::parse_trace(file.top());
  io::json_document const again("again", io::to_json(t).dump());
  insist(trace::fingerprint(io::parse_trace(again.top())) == trace::fingerprint(t));
}

inline void read_plan_bytes(std::string_view bytes) {
  io::json_document const file("input", bytes);
  io::plan_file const f = io::parse_plan(file.top());
  insist(plan::parse(f.string, f.job).has_value());
}

struct reader {
  std::string_view name;  ///< and the folder of its corpus
  void (*read)(std::string_view bytes);
};

inline constexpr std::array<reader, 4> readers{{{"config", read_config_bytes},
                                                {"machine", read_machine_bytes},
                                                {"trace", read_trace_bytes},
                                                {"plan", read_plan_bytes}}};

}  // namespace protrain::test
