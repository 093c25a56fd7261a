// SPDX-License-Identifier: Apache-2.0
#pragma once
// The flags that say what is trained, which `train` and `plan` share.

#include "examples/cli/flags.hpp"
#include "examples/cli/runfiles.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/config.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// A model, named on the command line, and a job for it.
struct training_task {
  std::string model;
  protrain::model::config config{};
  protrain::model::job job{};
};

/// A model of any family, of which no block need exist, and a job for it.
struct model_task {
  std::string model;
  std::string file;  ///< its configuration
  protrain::model::decoder_config shape{};
  protrain::model::job job{};
};

/// Whether a program can look for the best size of the micro-batch.
enum class micro_batches : std::uint8_t { given, searched };

/// `dtypes` are those that the program knows, its default first.
void add_task_flags(flags& f,
                    std::vector<std::string_view> const& dtypes,
                    micro_batches sizes = micro_batches::given);

/// One rank for each device of `machine`, unless said otherwise. Throws usage_error, also for sizes and
/// times that no plan counts, or protrain::io::input_error. `eager`: attention holds all pairs.
training_task read_task(flags const& f,
                        std::vector<std::string_view> const& dtypes,
                        runfiles const& files,
                        protrain::hw::machine const& machine);
model_task read_model_task(flags const& f,
                           std::vector<std::string_view> const& dtypes,
                           runfiles const& files,
                           protrain::hw::machine const& machine,
                           bool eager);

/// `--micro-batch auto`, which `read_model_task` reads as 1.
bool wants_best_micro_batch(flags const& f);
/// A power of two, the largest whose job isn't refused for its sizes or times.
std::uint64_t most_micro_batch(model_task const& t, protrain::hw::machine const& m, bool eager);

/// `--gpu-memory` and `--host-memory`; the machine's where they aren't given.
void add_budget_flags(flags& f);
/// Of a host, whose devices' ranks share it; of one rank where ranks share a device.
protrain::plan::budget read_budget(flags const& f,
                                   protrain::hw::machine const& m,
                                   std::uint64_t world);

/// "gpt2-xl: 1.56G parameters in 50 blocks; bf16, ..." on one line.
std::string describe(std::string const& name, protrain::trace::trace const& facts);

}  // namespace cli
