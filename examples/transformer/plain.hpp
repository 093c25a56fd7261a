// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training as a plain loop: the same blocks and the same arithmetic, without planner, engine or
// arena. Every tensor has heap memory of its own. What a plan computes must equal this in bits.

#include "protrain/block/standalone.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/loss.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace transformer {
namespace pt = protrain;

/// Trains a table of blocks on one rank, in fp32 or in bf16 with a split master.
class plain_trainer {
 public:
  plain_trainer(pt::block::table model, pt::model::job const& job, pt::optim::adamw rule = {})
      : model_(std::move(model)), job_(job), rule_(rule), blocks_(model_, job) {
    for (pt::model::parameter const& p : model_.parameters) {
      states_.emplace_back(pt::model::elements(p));
    }
  }

  /// `load(parameter, values)` fills the fp32 values of one parameter.
  template <class Load>
  void initialise(Load&& load) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::vector<float> values(states_[i].m.size());
      load(model_.parameters[i], std::span<float>(values));
      pt::tensor_view const to = blocks_.value(pt::make_id<pt::parameter_id>(i));
      for (std::size_t k = 0; k < values.size(); ++k) {
        auto const halves = pt::split_master(values[k]);
        states_[i].low[k] = model_.parameters[i].trainable ? halves.lo : std::int16_t{0};
        bf16() ? void(to.as<pt::bfloat16>()[k] = halves.hi) : void(to.as<float>()[k] = values[k]);
      }
    }
  }

  /// The fp32 (master) values of one parameter.
  std::vector<float> read(pt::parameter_id id) const {
    std::vector<float> out(states_[id.index()].m.size());
    pt::tensor_view const value = blocks_.value(id);
    for (std::size_t k = 0; k < out.size(); ++k) {
      out[k] = bf16() ? pt::merge_master(value.as<pt::bfloat16>()[k], states_[id.index()].low[k])
                      : value.as<float>()[k];
    }
    return out;
  }

  pt::runtime::step_result step(pt::runtime::batch const& data,
                                pt::runtime::step_options const& options) {
    std::vector<float> losses;
    for (std::uint64_t m = 0; m < job_.accumulate; ++m) {
      blocks_.begin({.step = steps_,
                     .first_sample = m * job_.micro_batch,
                     .loss_scale = pt::runtime::loss_scale(data.targets())});
      for (auto const& t : data.tensors()) {
        pt::tensor_view const to = blocks_.batch(t.name);
        std::memcpy(to.data, static_cast<std::byte const*>(t.data) + m * to.bytes(), to.bytes());
      }
      blocks_.forward();
      losses.insert(losses.end(), blocks_.losses().begin(), blocks_.losses().end());
      for (std::size_t b = model_.blocks.size(); b-- > 0;) {
        blocks_.backward(pt::make_id<pt::block_id>(b));
        collect(b);
      }
    }
    ++steps_;
    float const norm = update(options.learning_rate);
    return {.step = steps_,
            .loss = pt::runtime::mean_loss(losses, data.targets()),
            .grad_norm = norm,
            .grad_norm_clipped = norm * pt::optim::clip_factor(norm, job_.clip),
            .tokens = pt::model::tokens_per_step(job_)};
  }

 private:
  struct state {
    explicit state(std::size_t n) : gradient(n), low(n), m(n), v(n) {}
    std::vector<float> gradient;    // fp32 sum of the contributions
    std::vector<std::int16_t> low;  // of the bf16 value; stays 0 where frozen
    std::vector<float> m;
    std::vector<float> v;
    bool seen = false;  // in this step
  };

  bool bf16() const { return job_.type == pt::dtype::bf16; }

  /// Adds the contributions of block `b`: one for each parameter it uses.
  void collect(std::size_t b) {
    auto const& used = model_.blocks[b].parameters;
    for (std::uint32_t k = 0; k < used.size(); ++k) {
      auto const from = blocks_.contribution(pt::make_id<pt::block_id>(b), {k});
      state& to = states_[used[k].id.index()];
      auto const add = [&](auto const* g) {
        to.seen ? pt::optim::add(to.gradient.data(), g, to.m.size())
                : pt::optim::store(to.gradient.data(), g, to.m.size());
        to.seen = true;
      };
      if (from) {
        bf16() ? add(from.as<pt::bfloat16>()) : add(from.as<float>());
      }
    }
  }

  float update(double learning_rate) {
    pt::optim::exact_sum squares;
    for (state const& s : states_) {
      pt::optim::add_squares(squares, s.gradient.data(), s.seen ? s.m.size() : 0);
    }
    float const norm = pt::optim::norm(squares);
    float const scale = pt::optim::gradient_scale(1, norm, job_.clip);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      state& s = states_[i];
      auto const value = blocks_.value(pt::make_id<pt::parameter_id>(i));
      auto const with = rule_.prepare(
          learning_rate, static_cast<std::int64_t>(steps_), model_.parameters[i].decay);
      std::size_t const n = model_.parameters[i].trainable ? s.m.size() : 0;
      s.seen = false;
      float const* const g = s.gradient.data();
      if (bf16()) {
        auto* const high = value.as<pt::bfloat16>();
        pt::optim::update_split(with, scale, g, high, s.low.data(), s.m.data(), s.v.data(), n);
      } else {
        pt::optim::update_fp32(with, scale, g, value.as<float>(), s.m.data(), s.v.data(), n);
      }
    }
    return norm;
  }

  pt::block::table model_;
  pt::model::job job_;
  pt::optim::adamw rule_;
  pt::block::standalone blocks_;
  std::vector<state> states_;
  std::uint64_t steps_ = 0;
};

}  // namespace transformer
