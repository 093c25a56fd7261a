// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several ranks in one process, each an engine on a device of its own, and what they have in common.

#include "protrain/comm/threads.hpp"
#include "protrain/device/device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/differential.hpp"
#include "test/support/plain_ranks.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace protrain::test {

/// Calls `body(rank)` on a thread per rank; rethrows the first rank's exception, if any.
template <class Body>
void on_ranks(std::uint32_t ranks, Body const& body) {
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  for (std::exception_ptr const& f : failures) {
    if (f) {
      std::rethrow_exception(f);
    }
  }
}

/// Data of one step of all ranks, and each rank's part: micro-batches in order, ranks in each.
class global_data {
 public:
  /// `micro_batches` per rank; 0 means the job's.
  global_data(subject const& s, std::uint64_t step, std::uint64_t micro_batches = 0)
      : ranks_(s.job().world),
        micro_batches_(micro_batches == 0 ? s.job().accumulate : micro_batches) {
    subject all = s;
    all.facts.job.accumulate = micro_batches_ * ranks_;
    all.facts.job.world = 1;
    data_.emplace_back(all, step);
    for (std::uint64_t r = 0; r < ranks_; ++r) {
      parts_.emplace_back();
      for (runtime::batch::tensor const& t : data_[0].get().tensors()) {
        add_part(t, r);
      }
      parts_.back().targets(data_[0].get().targets() / ranks_);
    }
  }

  runtime::batch const& all() const { return data_[0].get(); }
  runtime::batch const& of(std::uint64_t rank) const { return parts_[rank]; }

 private:
  void add_part(runtime::batch::tensor const& t, std::uint64_t rank) {
    std::uint64_t const one = t.bytes / (micro_batches_ * ranks_);
    memory_.emplace_back(one * micro_batches_);
    for (std::uint64_t m = 0; m < micro_batches_; ++m) {
      std::memcpy(memory_.back().data() + m * one,
                  static_cast<std::uint8_t const*>(t.data) + (m * ranks_ + rank) * one,
                  one);
    }
    parts_.back().add(t.name, memory_.back().data(), memory_.back().size());
  }

  std::uint64_t ranks_;
  std::uint64_t micro_batches_;
  std::vector<step_data> data_{};
  std::vector<runtime::batch> parts_{};
  std::vector<std::vector<std::uint8_t>> memory_{};
};

/// What is done between steps; none of it may change a bit.
enum class between : std::uint8_t { nothing, evaluate, read, flush };

/// `steps` steps of a plain loop over all ranks, or of one rank's engine; with evaluations after
/// every second step.
template <class Trainer, class Part>
outcome train_part(
    Trainer& trainer, subject const& s, std::uint64_t steps, between what, Part const& part) {
  outcome out;
  trainer.initialise(s.load);
  for (std::uint64_t step = 0; step < steps; ++step) {
    global_data const data(s, step);
    double const rate = 1e-2 / static_cast<double>(1 + step);
    runtime::step_result const r = trainer.step(part(data), {.learning_rate = rate});
    out.losses.push_back(std::bit_cast<std::uint32_t>(r.loss));
    out.norms.push_back(std::bit_cast<std::uint32_t>(r.grad_norm));
    out.clipped.push_back(std::bit_cast<std::uint32_t>(r.grad_norm_clipped));
    if (step % 2 != 0) {
      continue;
    }
    if (what == between::evaluate) {
      global_data const held_out(s, 1000 + step, 2);
      float const loss = [&] {
        if constexpr (std::is_same_v<Trainer, plain_ranks>) {
          return trainer.evaluate(part(held_out), 2);
        } else {
          return trainer.evaluate(part(held_out));
        }
      }();
      out.losses.push_back(std::bit_cast<std::uint32_t>(loss));
      out.norms.push_back(0);
      out.clipped.push_back(0);
    } else if (what == between::read && !s.table.parameters.empty()) {
      out.parameters.push_back(bits_of(trainer.read(make_id<parameter_id>(0))));
    } else if (what == between::flush) {
      if constexpr (!std::is_same_v<Trainer, plain_ranks>) {
        trainer.flush();
      }
    }
  }
  add_parameters(out, trainer, s);
  return out;
}

inline outcome train_plain_ranks(subject const& s, std::uint64_t steps, between what) {
  plain_ranks trainer(s.table, s.job());
  return train_part(
      trainer, s, steps, what, [](global_data const& d) -> auto const& { return d.all(); });
}

/// Every rank's run. `make_device()` answers a unique_ptr; all devices alike.
template <class MakeDevice>
std::vector<engine_run> train_ranks(MakeDevice const& make_device,
                                    subject const& s,
                                    runtime::plan_parts const& parts,
                                    std::uint64_t steps,
                                    between what) {
  auto const ranks = static_cast<std::uint32_t>(s.job().world);
  comm::thread_group group(ranks, std::chrono::seconds(60));
  std::vector<engine_run> out(ranks);
  on_ranks(ranks, [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    auto const device = make_device();
    runtime::engine engine(*device, mine, s.table, parts);
    out[rank].bits = train_part(
        engine, s, steps, what, [rank](global_data const& d) -> auto const& { return d.of(rank); });
    out[rank].memory = memory_difference(engine);
    out[rank].unused = engine.unused();
  });
  return out;
}

}  // namespace protrain::test
