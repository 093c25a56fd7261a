// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of a training run: the text it reads, the log and the facts it writes.

#include "examples/cli/flags.hpp"
#include "examples/cli/options.hpp"
#include "examples/cli/runfiles.hpp"
#include "protrain/io/log.hpp"
#include "protrain/io/text_data.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace cli {

/// How runs without `--text` name what they learn.
inline constexpr char const* default_text = "this repository's sources and documents";

/// `--text`, or this repository's sources and documents.
protrain::io::text_data read_text(flags const& f, runfiles const& files, std::uint64_t sequence);

/// What goes into the facts.
struct run_description {
  training_task const& task;
  protrain::trace::trace const& facts;
  protrain::io::text_data const& text;
  std::string device;
  std::string plan;
  std::uint64_t steps = 0;
  double learning_rate = 0;
};

/// Starts `--log` FILE and writes FILE.meta.json.
std::unique_ptr<protrain::io::step_log> open_log(flags const& f, run_description const& about);

}  // namespace cli
