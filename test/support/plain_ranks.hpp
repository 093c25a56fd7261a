// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plain loop over several ranks: one process runs every rank's micro-batches one after the
// other and adds contributions by the arithmetic contract. No engine, no communicator, no shards.

#include "protrain/block/standalone.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/loss.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace protrain::test {

/// Trains a table in any dtype; masters are fp32 here, whatever the job's state format. Batches are
/// those of all ranks: micro-batches in order, ranks in each.
class plain_ranks {
 public:
  plain_ranks(block::table model, model::job const& job)
      : model_(std::move(model)), job_(job), blocks_(model_, job) {
    for (model::parameter const& p : model_.parameters) {
      states_.emplace_back(model::elements(p));
    }
  }

  template <class Load>
  void initialise(Load const& load) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      load(model_.parameters[i], std::span<float>(states_[i].master));
      publish(i);
      if (!model_.parameters[i].trainable) {
        widen_values(i);
      }
    }
  }

  std::vector<float> read(parameter_id id) const { return states_[id.index()].master; }

  runtime::step_result step(runtime::batch const& data, runtime::step_options const& options) {
    std::vector<float> losses;
    for (state& s : states_) {
      s.seen = false;
    }
    for (std::uint64_t m = 0; m < job_.accumulate; ++m) {
      run_micro_batch(data, m, losses);
    }
    ++attempted_;
    runtime::step_result out{.step = attempted_,
                             .loss = runtime::mean_loss(losses, data.targets()),
                             .tokens = model::tokens_per_step(job_)};
    update(options.learning_rate, out);
    return out;
  }

  /// The mean loss of `count` micro-batches per rank.
  float evaluate(runtime::batch const& data, std::uint64_t count = 1) {
    std::vector<float> losses;
    for (std::uint64_t k = 0; k < count * job_.world; ++k) {
      begin(data, k, 0);
      blocks_.forward(block::pass::evaluate);
      losses.insert(losses.end(), blocks_.losses().begin(), blocks_.losses().end());
    }
    return runtime::mean_loss(losses, data.targets());
  }

 private:
  struct state {
    explicit state(std::size_t n) : master(n, 0), gradient(n, 0), m(n, 0), v(n, 0) {}
    std::vector<float> master;
    std::vector<float> gradient;  ///< fp32 sum of the contributions
    std::vector<float> m;
    std::vector<float> v;
    bool seen = false;
  };
  /// By block and position in its parameters: fp32 copies, one per rank.
  using contributions = std::vector<std::vector<std::vector<std::vector<float>>>>;

  /// Loads micro-batch `k` of the global order.
  void begin(runtime::batch const& data, std::uint64_t k, float scale) {
    blocks_.begin({.step = attempted_, .first_sample = k * job_.micro_batch, .loss_scale = scale});
    for (auto const& t : data.tensors()) {
      tensor_view const to = blocks_.batch(t.name);
      std::memcpy(to.data, static_cast<std::byte const*>(t.data) + k * to.bytes(), to.bytes());
    }
  }

  void run_micro_batch(runtime::batch const& data, std::uint64_t m, std::vector<float>& losses) {
    contributions all(model_.blocks.size());
    for (std::uint64_t r = 0; r < job_.world; ++r) {
      begin(data, m * job_.world + r, runtime::loss_scale(data.targets(), job_.loss_scale));
      blocks_.forward();
      losses.insert(losses.end(), blocks_.losses().begin(), blocks_.losses().end());
      blocks_.backward();
      keep(all);
    }
    for (std::size_t b = model_.blocks.size(); b-- > 0;) {
      for (std::size_t k = 0; k < all[b].size(); ++k) {
        if (!all[b][k].empty()) {
          add(states_[model_.blocks[b].parameters[k].id.index()], all[b][k]);
        }
      }
    }
  }

  void keep(contributions& all) const {
    for (std::size_t b = 0; b < model_.blocks.size(); ++b) {
      auto const& used = model_.blocks[b].parameters;
      all[b].resize(used.size());
      for (std::uint32_t k = 0; k < used.size(); ++k) {
        auto const from = blocks_.contribution(make_id<block_id>(b), {k});
        if (from) {
          all[b][k].push_back(widened(from, states_[used[k].id.index()].m.size()));
        }
      }
    }
  }

  static std::vector<float> widened(tensor_view const& t, std::size_t n) {
    std::vector<float> out(n);
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = t.type == dtype::bf16  ? to_float(t.as<bfloat16 const>()[i])
               : t.type == dtype::f16 ? to_float(t.as<float16 const>()[i])
                                      : t.as<float const>()[i];
    }
    return out;
  }

  /// Left fold over ranks in fp32, rounded once to the gradient's dtype; then the sum of the step.
  void add(state& to, std::vector<std::vector<float>> const& ranks) const {
    float_environment const environment;
    for (std::size_t i = 0; i < to.gradient.size(); ++i) {
      float sum = ranks[0][i];
      for (std::size_t r = 1; r < ranks.size(); ++r) {
        sum += ranks[r][i];
      }
      float const rounded = job_.type == dtype::bf16  ? to_float(to_bfloat16(sum))
                            : job_.type == dtype::f16 ? to_float(to_float16(sum))
                                                      : sum;
      to.gradient[i] = to.seen ? to.gradient[i] + rounded : rounded;
    }
    to.seen = true;
  }

  void update(double learning_rate, runtime::step_result& out) {
    optim::exact_sum squares;
    for (state const& s : states_) {
      optim::add_squares(squares, s.gradient.data(), s.seen ? s.m.size() : 0);
    }
    float const inverse = 1 / job_.loss_scale;
    float const stored = optim::norm(squares);
    out.grad_norm = inverse * stored;
    out.grad_norm_clipped = out.grad_norm * optim::clip_factor(out.grad_norm, job_.clip);
    out.finite = squares.finite();
    out.skipped = job_.skip && !out.finite;
    if (out.skipped) {
      return;
    }
    ++applied_;
    float const scale = optim::gradient_scale(inverse, stored, job_.clip);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      state& s = states_[i];
      model::parameter const& p = model_.parameters[i];
      if (p.trainable && s.seen) {
        auto const with = rule_.prepare(
            learning_rate * p.learning_rate_scale, static_cast<std::int64_t>(applied_), p.decay);
        optim::update_fp32(
            with, scale, s.gradient.data(), s.master.data(), s.m.data(), s.v.data(), s.m.size());
        publish(i);
      }
    }
  }

  /// Working values from masters.
  void publish(std::size_t i) {
    tensor_view const to = blocks_.value(make_id<parameter_id>(i));
    for (std::size_t k = 0; k < states_[i].master.size(); ++k) {
      float const p = states_[i].master[k];
      if (to.type == dtype::bf16) {
        to.as<bfloat16>()[k] = to_bfloat16(p);
      } else if (to.type == dtype::f16) {
        to.as<float16>()[k] = to_float16(p);
      } else {
        to.as<float>()[k] = p;
      }
    }
  }
  /// A frozen parameter has no master: reading it gives its rounded values.
  void widen_values(std::size_t i) {
    states_[i].master = widened(blocks_.value(make_id<parameter_id>(i)), states_[i].master.size());
  }

  block::table model_;
  model::job job_;
  optim::adamw rule_{};
  block::standalone blocks_;
  std::vector<state> states_;
  std::uint64_t attempted_ = 0;
  std::uint64_t applied_ = 0;
};

}  // namespace protrain::test
