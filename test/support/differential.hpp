// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models, batches and bits for tests that compare a plan with the plain loop: the same blocks, once
// under an engine and once without.

#include "examples/transformer/plain.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/device/device.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/random_jobs.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::test {

using value_loader = std::function<void(model::parameter const&, std::span<float>)>;

/// A model for one job.
struct subject {
  std::shared_ptr<void const> owner{};  ///< of the blocks behind `table`
  block::table table{};
  trace::trace facts{};
  value_loader load{};

  model::job const& job() const noexcept { return facts.job; }
};

/// Uniform in +-`spread`, a function of name and element.
inline value_loader uniform_values(float spread) {
  return [spread](model::parameter const& p, std::span<float> values) {
    random_source draws(hash_name(p.name.view()));
    for (float& v : values) {
      v = spread * (static_cast<float>(draws.between(0, 1 << 20)) * 0x1p-19F - 1);
    }
  };
}

/// `model.entries(job)` must hold as long as `model` lives.
template <class Model>
subject make_subject(Model model, model::job const& job, value_loader load) {
  auto const owner = std::make_shared<Model const>(std::move(model));
  subject out{.owner = owner, .table = owner->entries(job), .load = std::move(load)};
  out.facts = profile::dry_run(out.table, job);
  return out;
}

/// Data of one step for whatever batch tensors a table names: bytes at random, floats in +-1,
/// integers below 256.
class step_data {
 public:
  step_data(subject const& s, std::uint64_t step) {
    random_source draws(977 * step + 5);
    for (block::batch_tensor const& t : s.table.batch) {
      std::vector<std::uint8_t> bytes(t.facts.bytes() * s.job().accumulate);
      fill(bytes, t.facts.type, draws);
      memory_.push_back(std::move(bytes));
      data_.add(t.name, memory_.back().data(), memory_.back().size());
    }
    data_.targets(tokens_per_step(s.job()));
  }
  step_data(step_data&&) noexcept = default;  // the bytes stay where they are
  step_data& operator=(step_data&&) noexcept = default;
  step_data(step_data const&) = delete;
  step_data& operator=(step_data const&) = delete;
  ~step_data() = default;

  runtime::batch const& get() const noexcept { return data_; }

 private:
  static void fill(std::span<std::uint8_t> to, dtype type, random_source& draws) {
    if (type == dtype::u8) {
      for (std::uint8_t& b : to) {
        b = static_cast<std::uint8_t>(draws.next());
      }
      return;
    }
    PROTRAIN_EXPECT(type == dtype::f32 || type == dtype::i32, "batch data of another dtype");
    for (std::size_t at = 0; at < to.size(); at += 4) {
      auto const k = static_cast<std::int32_t>(draws.between(0, 255));
      float const x = static_cast<float>(k - 128) * 0x1p-7F;
      std::uint32_t const word =
          type == dtype::i32 ? static_cast<std::uint32_t>(k) : std::bit_cast<std::uint32_t>(x);
      std::memcpy(to.data() + at, &word, 4);
    }
  }

  std::vector<std::vector<std::uint8_t>> memory_{};
  runtime::batch data_{};
};

/// Everything a run promises, in bits.
struct outcome {
  std::vector<std::uint32_t> losses{};
  std::vector<std::uint32_t> norms{};
  std::vector<std::uint32_t> clipped{};
  std::vector<std::vector<std::uint32_t>> parameters{};  ///< fp32 masters
  bool operator==(outcome const&) const = default;
};

/// The first thing in which two runs differ; empty if none.
inline std::string difference(outcome const& a, outcome const& b) {
  for (std::size_t i = 0; i < a.losses.size() && i < b.losses.size(); ++i) {
    if (a.losses[i] != b.losses[i]) {
      return "loss of step " + std::to_string(i + 1);
    }
    if (a.norms[i] != b.norms[i] || a.clipped[i] != b.clipped[i]) {
      return "norm of step " + std::to_string(i + 1);
    }
  }
  for (std::size_t i = 0; i < a.parameters.size() && i < b.parameters.size(); ++i) {
    if (a.parameters[i] != b.parameters[i]) {
      return "parameter " + std::to_string(i);
    }
  }
  return a == b ? "" : "number of steps or parameters";
}

inline std::vector<std::uint32_t> bits_of(std::span<float const> values) {
  std::vector<std::uint32_t> out;
  for (float const v : values) {
    out.push_back(std::bit_cast<std::uint32_t>(v));
  }
  return out;
}

/// Steps `first`, `first` + 1, ... with the learning rate falling. `Trainer` is an engine or the
/// plain loop.
template <class Trainer>
void add_steps(
    outcome& out, Trainer& trainer, subject const& s, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t step = first; step < first + count; ++step) {
    step_data const data(s, step);
    double const rate = 1e-2 / static_cast<double>(1 + step);
    runtime::step_result const r = trainer.step(data.get(), {.learning_rate = rate});
    out.losses.push_back(std::bit_cast<std::uint32_t>(r.loss));
    out.norms.push_back(std::bit_cast<std::uint32_t>(r.grad_norm));
    out.clipped.push_back(std::bit_cast<std::uint32_t>(r.grad_norm_clipped));
  }
}

template <class Trainer>
void add_parameters(outcome& out, Trainer& trainer, subject const& s) {
  for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
    out.parameters.push_back(bits_of(trainer.read(make_id<parameter_id>(i))));
  }
}

template <class Trainer>
outcome train(Trainer& trainer, subject const& s, std::uint64_t steps) {
  outcome out;
  trainer.initialise(s.load);
  add_steps(out, trainer, s, 0, steps);
  add_parameters(out, trainer, s);
  return out;
}

inline outcome train_plain(subject const& s, std::uint64_t steps) {
  transformer::plain_trainer trainer(s.table, s.job());
  return train(trainer, s, steps);
}

/// In what the device counted differs from what the program says; empty if in nothing.
template <class Engine>
std::string memory_difference(Engine const& e) {
  std::string out;
  auto const compare = [&](std::string const& what, std::uint64_t counted, std::uint64_t said) {
    if (counted != said) {
      out += what + ": counted " + std::to_string(counted) + ", predicted " + std::to_string(said) +
             "; ";
    }
  };
  for (space const where : {space::device, space::host}) {
    device::usage const counted = e.measured(where);
    schedule::memory_report const said = e.predicted(where);
    std::string const name(name_of(where));
    compare(name + " peak", counted.peak, said.peak);
    for (std::size_t c = 0; c < category_count; ++c) {
      std::string const category =
          name + " " + std::string(name_of(static_cast<core::category>(c)));
      compare(category + " at the peak", counted.at_peak[c], said.at_peak[c]);
      compare(category + " at most", counted.maximum[c], said.maximum[c]);
    }
  }
  return out;
}

/// A run under an engine, and its bookkeeping.
struct engine_run {
  outcome bits{};
  std::string memory{};      ///< memory_difference
  std::uint64_t unused = 0;  ///< engine::unused
};

template <device::device Device>
engine_run train_on(Device& device,
                    subject const& s,
                    chunk::layout const& layout,
                    std::vector<schedule::program> const& programs,
                    std::uint64_t steps) {
  comm::self alone;
  runtime::engine engine(device, alone, s.table, runtime::plan_parts{s.facts, layout, programs});
  engine_run out{.bits = train(engine, s, steps)};
  out.memory = memory_difference(engine);
  out.unused = engine.unused();
  return out;
}

/// The same with a step's program alone, which defers nothing.
template <device::device Device>
engine_run train_on(Device& device,
                    subject const& s,
                    chunk::layout const& layout,
                    schedule::program const& step,
                    std::uint64_t steps) {
  return train_on(device, s, layout, std::vector<schedule::program>{step}, steps);
}

}  // namespace protrain::test
