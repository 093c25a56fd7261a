// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop of the example, the same for a planned and a plain run: data, log, progress,
// and a hash of everything that must not depend on the plan.

#include "examples/cli/interrupt.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/io/log.hpp"
#include "protrain/io/text_data.hpp"
#include "protrain/model/job.hpp"
#include "protrain/report/format.hpp"
#include "protrain/report/progress.hpp"
#include "protrain/runtime/batch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// One rank's micro-batches of one step. Samples of a step are counted over micro-batches, ranks in
/// each, samples of each, so that the global batch is the same however it is split.
class step_data {
 public:
  explicit step_data(protrain::model::job const& job, std::uint64_t rank = 0)
      : job_(job),
        rank_(rank),
        tokens_(job.accumulate * job.micro_batch * job.sequence),
        targets_(tokens_.size()) {}

  protrain::runtime::batch fill(protrain::io::text_data const& text, std::uint64_t step) {
    for (std::uint64_t i = 0; i < job_.accumulate * job_.micro_batch; ++i) {
      std::uint64_t const at = i * job_.sequence;
      std::uint64_t const m = i / job_.micro_batch;
      text.sample(job_.seed,
                  step,
                  i + (m * (job_.world - 1) + rank_) * job_.micro_batch,
                  std::span(tokens_).subspan(at, job_.sequence),
                  std::span(targets_).subspan(at, job_.sequence));
    }
    std::uint64_t const bytes = tokens_.size() * sizeof(std::int32_t);
    protrain::runtime::batch out;
    out.add("tokens", tokens_.data(), bytes)
        .add("targets", targets_.data(), bytes)
        .targets(targets_.size());
    return out;
  }

 private:
  protrain::model::job const& job_;
  std::uint64_t rank_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

/// Hashes the bits of a sequence of fp32 numbers.
class bit_hash {
 public:
  void add(std::span<float const> values) {
    std::string_view const bytes(reinterpret_cast<char const*>(values.data()), values.size_bytes());
    std::uint64_t const pair[2] = {value_, protrain::hash_name(bytes)};
    value_ = protrain::hash_name({reinterpret_cast<char const*>(pair), sizeof pair});
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// What a run was.
struct loop_result {
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  double seconds = 0;
  bit_hash losses;
  bit_hash norms;
  bool interrupted = false;
};

inline std::string step_line(protrain::io::step_record const& r, std::uint64_t steps) {
  using protrain::report::fixed;
  return "step " + std::to_string(r.step) + "/" + std::to_string(steps) + "  loss " +
         fixed(r.loss, 4) + "  norm " + fixed(r.grad_norm, 4) + "  " +
         protrain::report::human_count(
             static_cast<std::uint64_t>(static_cast<double>(r.tokens) / r.seconds)) +
         " tokens/s";
}

/// Shows steps: some ten lines, and on a terminal every step.
class step_printer {
 public:
  explicit step_printer(std::uint64_t steps)
      : steps_(steps), every_(std::max<std::uint64_t>(1, steps / 10)) {}

  void show(protrain::io::step_record const& r) {
    std::string const line = step_line(r, steps_);
    if (r.step == 1 || r.step % every_ == 0 || r.step == steps_) {
      progress_.clear();
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    } else {
      progress_.show(line);
    }
  }

 private:
  std::uint64_t steps_;
  std::uint64_t every_;
  protrain::report::progress progress_{stdout};
};

/// Calls `step(batch)` for steps 1, 2, ..., which returns a step_record, until `stop()`. Only rank
/// 0 prints and logs.
template <class Step, class Stop>
loop_result run_steps(protrain::model::job const& job,
                      protrain::io::text_data const& text,
                      std::uint64_t steps,
                      protrain::io::step_log* log,
                      Step const& step,
                      Stop const& stop,
                      std::uint64_t rank = 0) {
  loop_result out;
  step_data data(job, rank);
  step_printer printer(steps);
  for (std::uint64_t s = 1; s <= steps; ++s) {
    protrain::io::step_record const r = step(data.fill(text, s));
    if (log != nullptr && rank == 0) {
      log->add(r);
    }
    ++out.steps;
    out.tokens += r.tokens;
    out.seconds += r.seconds;
    out.losses.add(std::span(&r.loss, 1));
    out.norms.add(std::span(&r.grad_norm, 1));
    if (rank == 0) {
      printer.show(r);
    }
    if (s < steps && stop()) {
      out.interrupted = true;
      break;
    }
  }
  return out;
}

}  // namespace cli
